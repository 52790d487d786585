"""How processes are started; locks that a thread holds while another forks the process; processes
whose parent dies."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Callable

import pytest

from spacy_nested_ner import forks
from spacy_nested_ner.layers.quick_products import by_one_dnn
from spacy_nested_ner.scale import pipelines
from tests.conftest import make_pipeline

SECONDS = 30
GPUS = ["has_cupy_gpu", "has_torch_cuda_gpu"]
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="no forks on this system"),
    pytest.mark.no_gpu("CUDA cannot be used in a forked process"),
]


def works_in_a_fork(work: Callable[[], object]) -> bool:
    """Whether this process, forked now, gets through."""
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)  # which ends it where it waits
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def test_a_pipeline_that_is_in_use(tmp_path):
    nlp = make_pipeline("piqn_ner")
    nlp.to_disk(tmp_path)
    model = str(tmp_path)
    digest = pipelines.hash_of(model)

    def use() -> None:
        with pipelines.load(model, digest).zone(["IL-2"]) as nlp:
            nlp("IL-2")

    with pipelines.load(model, digest).zone(["IL-2"]):
        assert works_in_a_fork(use)
    use()


def test_products_by_one_dnn():
    def use() -> None:
        assert not by_one_dnn.inside
        assert by_one_dnn.lock.acquire(timeout=1)

    with by_one_dnn.lock:
        assert works_in_a_fork(use)
    use()
    by_one_dnn.lock.release()


PARENT = """
import os, sys, time, multiprocessing
from concurrent.futures import ProcessPoolExecutor
from spacy_nested_ner.forks import end_with_parent

if __name__ == "__main__":
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawning, end_with_parent) as pool:
        print(pool.submit(os.getpid).result(), flush=True)
        pool.submit(time.sleep, 600).result()
"""


def test_a_process_ends_with_its_parent(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT, encoding="utf8")
    command = [sys.executable, str(tmp_path / "parent.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)  # it is there
        parent.send_signal(signal.SIGTERM)
    for _ in range(10 * SECONDS):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def start_method() -> str:
    return forks.forking_context(__name__).get_start_method()


@pytest.mark.skipif(sys.platform != "linux", reason="processes start from nothing here")
def test_processes_are_forked_from_one_that_has_imported_what_they_need(monkeypatch):
    for gpu in GPUS:
        monkeypatch.setattr(forks, gpu, False)
    has_imported = "set(['spacy.lang.xx', 'torch']) <= set(__import__('sys').modules)"
    with ProcessPoolExecutor(1, forks.forking_context("spacy_nested_ner")) as pool:
        assert pool.submit(eval, has_imported).result()


@pytest.mark.parametrize("gpu", GPUS)
def test_processes_for_a_gpu_are_no_forks(monkeypatch, gpu):
    monkeypatch.setattr(forks, gpu, True)
    assert start_method() == "spawn"


def test_processes_find_the_modules_that_the_command_finds(monkeypatch):
    """A forking process would look for them in the working directory first."""
    others = [path for path in sys.path if path not in ("", os.getcwd())]
    monkeypatch.setattr(sys, "path", others)
    assert start_method() == "spawn"
