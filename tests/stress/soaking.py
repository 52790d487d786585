"""A process that reads docs of ever new words: `python soaking.py MODEL MODE DOCS SECONDS SEED`.

Prints JSON: processor time in seconds of each chunk of docs, and memory in bytes at first and after
so many chunks each ("every"). MODE:
"plain", or "zone" for memory zones; with "tokenizer " before it the tokenizer alone.
"""

import contextlib
import gc
import random
import sys
import time
from pathlib import Path
from typing import Iterator, List

import spacy
import srsly
from spacy.language import Language

CHUNK = 100
EVERY = 10
# Docs before the first measurement, unless a third of the time is over: caches of a fixed size are
# full by then.
WARM_UP = 3000
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


def main(model: str, mode: str, n_docs: int, seconds: float, seed: int) -> None:
    nlp = spacy.load(model)
    in_zone = mode.endswith("zone")
    if mode.startswith("tokenizer"):
        nlp.select_pipes(enable=[])
    stream, start = texts(seed), time.monotonic()
    for _ in range(WARM_UP // CHUNK):
        read(nlp, [next(stream) for _ in range(CHUNK)], in_zone)
        if time.monotonic() > start + seconds / 3:
            break
    sizes, times, spans = [memory()], [], 0
    while len(times) * CHUNK < n_docs and (
        len(times) < EVERY or time.monotonic() < start + seconds
    ):
        chunk = [next(stream) for _ in range(CHUNK)]
        begin = time.process_time()
        spans += read(nlp, chunk, in_zone)
        times.append(time.process_time() - begin)
        if len(times) % EVERY == 0:
            sizes.append(memory())
    measured = {"sizes": sizes, "times": times, "spans": spans}
    print(srsly.json_dumps({"chunk": CHUNK, "every": EVERY, **measured}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
