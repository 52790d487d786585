"""Several processes, with each way to start them."""

import multiprocessing
import os
import signal
import subprocess
import sys

import pytest
import spacy
import srsly

from tests.conftest import SENTENCES, spans_of

# Ops on tensors of this size run in torch's threads. A forked process inherits them as if they
# were there and waits for ever for one that is not.
SCRIPT = """
import multiprocessing
import sys
import spacy
import srsly
import torch

if __name__ == "__main__":
    method, path, texts = sys.argv[1:]
    multiprocessing.set_start_method(method)
    torch.set_num_threads(2)
    nlp = spacy.load(path)
    words = torch.rand(3000, 3000)
    assert float((words @ words).exp().sum()) > 0
    docs = nlp.pipe(srsly.read_json(texts), n_process=2, batch_size=3)
    found = [[[s.start, s.end, s.label_] for s in doc.spans["sc"]] for doc in docs]
    assert torch.get_num_threads() == 2
    print(srsly.json_dumps(found))
"""


def run_or_kill(command: list, seconds: int) -> str:
    """Runs a process; kills it with all its children if it hangs."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"no result after {seconds} seconds")
    assert process.returncode == 0, errors
    return output


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_two_processes_after_torch_has_used_threads(model_path, tmp_path, method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot start processes by {method}")
    texts = [text for text, _ in SENTENCES]
    script, data = tmp_path / "script.py", tmp_path / "texts.json"
    script.write_text(SCRIPT, encoding="utf8")
    srsly.write_json(data, texts)
    command = [sys.executable, str(script), method, str(model_path), str(data)]
    found = srsly.json_loads(run_or_kill(command, seconds=60))
    docs = list(spacy.load(model_path).pipe(texts))
    expected = [[list(span) for span in spans_of(doc)] for doc in docs]
    assert found == expected and sum(map(len, expected)) > 10
