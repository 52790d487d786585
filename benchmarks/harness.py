"""What several benchmarks share: limited processes, and where a figure comes from."""

import multiprocessing
import os
import platform
import resource
import signal
import sys
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Callable, Dict, List

import srsly
import torch
import typer
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from spacy_nested_ner.corpora.files import written_together
from spacy_nested_ner.systems.mrc.questions import number_word

CONFIGS = Path(__file__).parents[1] / "configs"
SYSTEMS = [
    "piqn_ner",
    "locate_and_label_ner",
    "diffusion_ner",
    "proposer_regressor_ner",
    "mrc_ner",
    "spancat",
]
PACKAGES = ["spacy", "thinc", "torch", "numpy", "transformers", "spacy-transformers"]


def provenance() -> Dict[str, Any]:
    """Versions, machine and command of a result."""
    return {
        "versions": {name: version(name) for name in PACKAGES},
        "machine": f"{platform.system()}, {platform.machine()}, {hardware()}",
        "command": " ".join(sys.argv),
    }


def hardware() -> str:
    """Processor, its cores, and the GPU if there is one."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf8").splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = models[0] if models else platform.processor()
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{name}, {os.cpu_count()} cores{gpu}"


def write_result(path: Path, result: Any) -> None:
    """JSON that is there whole or not at all."""
    with written_together([path]) as drafts:
        drafts[path].write_text(srsly.json_dumps(result, indent=2) + "\n", encoding="utf8")


def read(nlp: Language, path: Path, limit: int) -> List[Doc]:
    """The first docs of a file; 0 for all."""
    return list(DocBin().from_disk(path).get_docs(nlp.vocab))[: limit or None]


def only_pipe(nlp: Language, kind: Callable[[str, Any], bool], wanted: str) -> Any:
    """The component of that kind, whatever its name.

    kind: says so of a component's factory and the component. wanted: what it is, for the error.

    Raises typer.BadParameter unless there is exactly one.
    """
    metas = {name: nlp.get_pipe_meta(name).factory for name in nlp.pipe_names}
    found = [name for name, factory in metas.items() if kind(factory, nlp.get_pipe(name))]
    if len(found) != 1:
        has = ", ".join(f"'{name}' ({factory})" for name, factory in metas.items()) or "none"
        raise typer.BadParameter(f"{len(found)} components are {wanted}; expected one of: {has}.")
    return nlp.get_pipe(found[0])


def questions_for(labels: List[str]) -> Dict[str, str]:
    """A question for each label, all of them different."""
    kinds = (number_word(i + 1) for i in range(len(labels)))
    return {
        label: f"Which things of kind {kind} are mentioned?" for label, kind in zip(labels, kinds)
    }


def limited(
    function: Callable[..., Dict[str, Any]], *arguments: Any, cpu_seconds: int, gib: float
) -> Dict[str, Any]:
    """What a function returns in a process of its own; `{"limit": "time"}` or "memory" where it ran
    out of it. Needs Linux.

    The process is a fork, which has imported all this one has: torch must not have computed
    anything here. cpu_seconds: CPU time of the process. gib: of its private memory.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, gib, function, arguments))
    process.start()
    sender.close()
    while not receiver.poll(0.2):
        if _cpu_seconds(process.pid) > cpu_seconds:
            process.kill()
            process.join()
            return {"limit": "time"}
    try:
        found: Dict[str, Any] = receiver.recv()
    except EOFError:
        found = {}
    process.join()
    if found:
        return found
    if process.exitcode == -signal.SIGKILL:  # the system had no memory left
        return {"limit": "memory"}
    raise RuntimeError(f"{function.__name__}{arguments} ended with code {process.exitcode}.")


def _cpu_seconds(pid: Any) -> float:
    """CPU time of another process. Not left to RLIMIT_CPU, under which a process reads its own
    clock in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _answer(sender: Connection, gib: float, function: Callable, arguments: Any) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (int(gib * 2**30), resource.RLIM_INFINITY))
    try:
        sender.send(function(*arguments))
    except (MemoryError, RuntimeError) as error:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        # torch says so in words only.
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        sender.send({"limit": "memory"})
