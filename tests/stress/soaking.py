"""A process that reads docs of ever new words: `python soaking.py MODEL MODE DOCS SECONDS SEED`.

Prints JSON, of the "pipeline" and, if it read more than a few docs, of the "tokenizer" alone on as
many: processor time in seconds of each chunk of docs and, right after it, of the yardstick, a piece
of work that is the same each time; and memory in bytes at first and after so many chunks each
("every"). MODE: "plain", or "zone" for memory zones. Each is measured in a fork, which has used
nothing before.
"""

import contextlib
import gc
import random
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import spacy
import srsly
import torch
from spacy.language import Language

from benchmarks.harness import in_process

CHUNK = 100
EVERY = 10
SHORT = 1000  # so few docs, or fewer, say little of speed and of the vocabulary
# Docs before the first measurement, unless a third of the time is over: caches of a fixed size are
# full by then.
WARM_UP = 3000
TABLE = torch.ones(1 << 22)  # 16 MB: more than the cache that a processor has to itself
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-äöüßéøλ"


def texts(seed: int) -> Iterator[str]:
    """5 to 12 words, all of them new but one, which was learned."""
    draw = random.Random(seed)
    while True:
        words = ["".join(draw.choices(LETTERS, k=draw.randint(3, 12))) for _ in range(11)]
        words[draw.randrange(4)] = draw.choice(["Oslo", "p53", "Paris", "IL-2", "nothing"])
        yield " ".join(words[: draw.randint(5, 11)])


def memory() -> int:
    """Resident memory of this process in bytes."""
    gc.collect()
    for line in Path("/proc/self/status").read_text(encoding="utf8").splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("this system does not tell the memory of a process")


def read(nlp: Language, chunk: List[str], in_zone: bool) -> int:
    """Run the pipeline. RETURNS: the number of spans."""
    with nlp.memory_zone() if in_zone else contextlib.nullcontext():
        return sum(len(doc.spans.get("sc", ())) for doc in nlp.pipe(chunk, batch_size=64))


def yardstick(draw: torch.Generator) -> float:
    """Processor time in seconds of work that knows nothing of docs: how fast the machine is now at
    products, at Python and at memory."""
    places = torch.randint(len(TABLE), (100_000,), generator=draw)
    values = torch.ones(128, 128)
    begin = time.process_time()
    for _ in range(50):
        values = (values @ values).tanh()
    TABLE[places].sum()
    sum(len(str(number)) for number in range(10_000))
    return time.process_time() - begin


def measure(nlp: Language, mode: str, n_docs: int, seconds: float, seed: int) -> Dict[str, Any]:
    """See above."""
    in_zone = mode == "zone"
    stream, draw, start = texts(seed), torch.Generator(), time.monotonic()
    for _ in range(WARM_UP // CHUNK):
        read(nlp, [next(stream) for _ in range(CHUNK)], in_zone)
        if time.monotonic() > start + seconds / 3:
            break
    sizes, times, yardsticks, spans = [memory()], [], [], 0
    while len(times) * CHUNK < n_docs and (
        len(times) < EVERY or time.monotonic() < start + seconds
    ):
        chunk = [next(stream) for _ in range(CHUNK)]
        begin = time.process_time()
        spans += read(nlp, chunk, in_zone)
        times.append(time.process_time() - begin)
        yardsticks.append(yardstick(draw))
        if len(times) % EVERY == 0:
            sizes.append(memory())
    measured = {"sizes": sizes, "times": times, "yardsticks": yardsticks, "spans": spans}
    return {"chunk": CHUNK, "every": EVERY, **measured}


def main(model: str, mode: str, n_docs: int, seconds: float, seed: int) -> None:
    nlp = spacy.load(model)
    found = {"pipeline": in_process(measure, nlp, mode, n_docs, seconds, seed)}
    docs = CHUNK * len(found["pipeline"]["times"])
    if docs > SHORT:
        nlp.select_pipes(enable=[])
        found["tokenizer"] = in_process(measure, nlp, mode, docs, 600, seed)
    print(srsly.json_dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
