"""Several processes, with each way to start them."""

import multiprocessing

import pytest
import spacy

from tests.conftest import SENTENCES, spans_of
from tests.integration.conftest import found_by_two_processes


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_two_processes_after_torch_has_used_threads(model_path, tmp_path, method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot start processes by {method}")
    texts = [text for text, _ in SENTENCES]
    found = found_by_two_processes(method, model_path, texts, tmp_path)
    docs = list(spacy.load(model_path).pipe(texts))
    assert found == [spans_of(doc) for doc in docs] and sum(map(len, found)) > 10
