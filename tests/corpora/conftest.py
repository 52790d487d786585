from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
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
def shared() -> Path:
    """Open corpora beside the checkout; tests that need them are skipped where they are not."""
    if not SHARED.is_dir():
        pytest.skip("the open corpora are not beside this checkout")
    return SHARED
