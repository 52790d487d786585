"""Many docs with ever new words: memory and speed of a pipeline that runs for long."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np
import pytest
import srsly

from tests.stress import soaking
from tests.stress.pipelines import SYSTEMS, small_pipeline

DOCS = 100_000
# Memory of a process goes up and down by some MB whatever it does.
NOISE = 8 * 1024**2
# torch keeps what it has compiled for the last 1024 shapes of its input. Here it keeps one, so that
# what is left is what the pipeline keeps.
COMPILED = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1"}
SHOWN = 10  # the memory is recorded after each of so many parts
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="this system does not tell the memory"
)


def soaked(model: Path, mode: str, docs: int, seconds: float, seed: int) -> Dict[str, Any]:
    """What a process measured, see `soaking`."""
    arguments = [str(model), mode, str(docs), str(seconds), str(seed)]
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    output = subprocess.run(
        [sys.executable, soaking.__file__, *arguments],
        stdout=subprocess.PIPE,
        check=True,
        timeout=10 * seconds + 1200,
        env={**os.environ, **COMPILED, "PYTHONPATH": paths},
    ).stdout
    found: Dict[str, Any] = srsly.json_loads(output.splitlines()[-1])
    return found


class Soak:
    """What was measured while docs were read."""

    def __init__(self, measured: Dict[str, Any]) -> None:
        self.sizes, self.times = measured["sizes"], measured["times"]
        self.yardsticks = measured["yardsticks"]
        self.chunk, self.spans = measured["chunk"], measured["spans"]
        self.every = measured["every"]

    @property
    def docs(self) -> int:
        """How many were read after the warm-up."""
        return self.chunk * len(self.times)

    def growth(self) -> float:
        """Slope of the memory, bytes per doc."""
        docs = self.chunk * self.every * np.arange(len(self.sizes))
        return float(np.polyfit(docs, self.sizes, 1)[0])

    def speeds(self) -> List[float]:
        """Docs per second of processor time in the first and in the last tenth: of the fastest
        chunk, because other programs of the machine can only slow it down."""
        return [self.chunk / min(times) for times in self._tenths(self.times)]

    def machine(self) -> float:
        """The speed of the machine in the last tenth as a share of the first, by the yardstick."""
        first, last = (min(times) for times in self._tenths(self.yardsticks))
        return first / last

    def last_to_first(self) -> float:
        """The speed of the last tenth as a share of the first, on a machine that stays as fast."""
        first, last = self.speeds()
        return last / first / self.machine()

    @staticmethod
    def _tenths(times: List[float]) -> Tuple[List[float], List[float]]:
        tenth = max(2, len(times) // 10)
        return times[:tenth], times[-tenth:]

    def figures(self) -> Dict[str, Any]:
        """For the record."""
        first, last = self.speeds()
        shown = np.linspace(0, len(self.sizes) - 1, SHOWN + 1).astype(int)
        return {
            "docs": self.docs,
            "spans": self.spans,
            "bytes_per_doc": round(self.growth(), 1),
            "megabytes": [round(self.sizes[i] / 1024**2, 1) for i in shown],
            "docs_per_second_first_tenth": round(first, 1),
            "docs_per_second_last_tenth": round(last, 1),
            "machine_last_to_first": round(self.machine(), 3),
            "speed_last_to_first": round(self.last_to_first(), 3),
        }


@pytest.mark.share(4)
@pytest.mark.parametrize("mode", ["plain", "zone"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_soak(trial, tmp_path, system: str, mode: str) -> None:
    small_pipeline(system).to_disk(tmp_path)
    found = soaked(tmp_path, mode, DOCS, max(3.0, 0.7 * trial.left()), trial.seed)
    soak = Soak(found["pipeline"])
    trial.record(pipeline=soak.figures())
    beyond = soak.growth()
    if "tokenizer" in found:
        control = Soak(found["tokenizer"])
        # The tokenizer meets the same new words: what it keeps of them is spaCy's vocabulary.
        beyond -= control.growth()
        trial.record(tokenizer_alone=control.figures())
    trial.record(bytes_per_doc_beyond_vocabulary=round(beyond, 1))
    assert soak.spans > 0
    # A short run is still warming up.
    room, least = (NOISE, 0.95) if soak.docs > 20 * soaking.SHORT else (4 * NOISE, 0.5)
    assert beyond < room / soak.docs, f"memory grows by {beyond:.0f} bytes per doc"
    first, last = soak.speeds()
    told = f"{first:.0f} docs per second at first, {last:.0f} at last"
    assert soak.last_to_first() >= least, f"{told}, the machine {soak.machine():.3f} as fast"
