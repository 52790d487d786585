from __future__ import annotations

from pathlib import Path

import pytest

ASSETS = Path(__file__).parents[2] / "assets" / "genia"


@pytest.fixture(scope="session")
def genia_archive() -> Path:
    return ASSETS / "GENIAcorpus3.02.tgz"


@pytest.fixture(scope="session")
def genia_sample() -> Path:
    return ASSETS / "sample" / "GENIAcorpus3.02.sample.xml"


@pytest.fixture(scope="session")
def genia_expected() -> Path:
    return ASSETS / "sample" / "expected.jsonl"


@pytest.fixture(scope="session")
def samples() -> Path:
    """A few sentences of each open corpus, see `samples/README.md`."""
    return Path(__file__).parent / "samples"
