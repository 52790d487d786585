from pathlib import Path

import pytest

from tests.scale.pipelines import save_pipeline


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A pipeline on disk. Not to be changed by a test."""
    return save_pipeline(tmp_path_factory.mktemp("scale") / "model")
