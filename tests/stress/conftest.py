"""The stress suite: `python -m pytest tests/stress --budget MINUTES [--results FOLDER]`.

Each test of it draws inputs from a seeded generator until it has tried as many as it wants to, or
until its share of the budget is used up. With `--results` each test writes its figures to a file
there; `docs/robustness.md` is made from these.
"""

import platform
import re
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import srsly


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stress")
    group.addoption("--budget", type=float, default=2.0, help="Minutes for all stress tests")
    group.addoption("--seed", type=int, default=0, help="Seed of what the stress tests try")
    group.addoption("--results", type=Path, help="Folder for a file of figures of each test")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "share(weight): how much of the budget this stress test may use (default 1)"
    )


@pytest.hookimpl(trylast=True)  # what `-k` leaves out has no share
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    total = sum(_share(item) for item in items) or 1.0
    for item in items:
        seconds = 60 * config.getoption("--budget") * _share(item) / total
        item.user_properties.append(("seconds", seconds))


def _share(item: pytest.Item) -> float:
    marker = item.get_closest_marker("share")
    return float(marker.args[0]) if marker else 1.0


class Trial:
    """What one stress test may use, and what it reports."""

    def __init__(self, name: str, seconds: float, seed: int) -> None:
        self.name = name
        self.seconds = seconds
        self.seed = seed
        self.figures: Dict[str, Any] = {}
        self._begin = time.monotonic()

    def left(self) -> float:
        """Seconds of the budget that are left to this test; below 0 when it is used up."""
        return self.seconds - (time.monotonic() - self._begin)

    def inputs(self, most: int) -> Iterator[int]:
        """Numbers from 0 while there is time: at least one, at most `most`."""
        for number in range(most):
            if number and self.left() <= 0:
                return
            yield number

    def record(self, **figures: Any) -> None:
        """Figures for the file of this test."""
        self.figures.update(figures)


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Iterator[Trial]:
    """The test's share of the budget, its seed, and its record."""
    seconds = dict(request.node.user_properties)["seconds"]
    name = re.sub(r"\W+", "_", request.node.name.removeprefix("test_")).strip("_")
    own = Trial(name, seconds, request.config.getoption("--seed"))
    yield own
    folder = request.config.getoption("--results")
    if folder is not None:
        assert own.figures, "a stress test records what it tried"
        folder.mkdir(parents=True, exist_ok=True)
        facts = {
            "test": request.node.nodeid,
            "seed": own.seed,
            "seconds": round(own.seconds - own.left(), 1),
            "python": platform.python_version(),
            **own.figures,
        }
        srsly.write_json(folder / f"{name}.json", facts)
