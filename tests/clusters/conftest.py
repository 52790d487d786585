"""Tests in real Spark and Ray: `python -m pytest tests/clusters`, in one process."""

import os

import pytest

from tests.scale.conftest import model

__all__ = ["model"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The working directory of Java and of Ray, which stays where they were started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(os.getcwd())
        folder = tmp_path_factory.mktemp("cluster")
        patch.chdir(folder)
        yield folder
