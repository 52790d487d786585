"""Tiny pretrained encoders on disk. Not to be changed by a test."""

import pytest


@pytest.fixture(scope="module", params=["bert", "roberta"])
def directory(request, tmp_path_factory) -> str:
    from encoders import save_encoder

    return save_encoder(tmp_path_factory.mktemp("encoder") / request.param, request.param)


@pytest.fixture(scope="module")
def bert(tmp_path_factory) -> str:
    from encoders import save_encoder

    return save_encoder(tmp_path_factory.mktemp("encoder") / "bert", "bert")
