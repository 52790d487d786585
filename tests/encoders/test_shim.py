"""What a shim does on a GPU, played on a machine without one."""

from typing import Any, Dict, List

import pytest
from torch import nn

from spacy_nested_ner.encoders import shim
from spacy_nested_ner.encoders.shim import TorchShim


class FakePool:
    freed = 0

    def free_all_blocks(self) -> None:
        FakePool.freed += 1


class FakeCupy:
    @staticmethod
    def get_default_memory_pool() -> FakePool:
        return FakePool()


class FakeCupyOps:
    xp = FakeCupy


class FakePools:
    def __init__(self, names: Dict[str, Any]) -> None:
        self.names = names

    def get(self) -> Dict[str, Any]:
        return self.names


@pytest.mark.parametrize(
    ("on_gpu", "pools", "expected"),
    [(True, {}, ["pytorch"]), (True, {"pytorch": None}, []), (False, {}, [])],
)
def test_cupy_takes_its_memory_from_torch(on_gpu, pools, expected, monkeypatch) -> None:
    """As spaCy's own PyTorch layers do; once, and only on a GPU."""
    allocators: List[str] = []
    FakePool.freed = 0
    monkeypatch.setattr(shim, "CupyOps", FakeCupyOps)
    monkeypatch.setattr(shim, "get_current_ops", FakeCupyOps if on_gpu else object)
    monkeypatch.setattr(shim, "context_pools", FakePools(pools))
    monkeypatch.setattr(shim, "set_gpu_allocator", allocators.append)
    TorchShim(None).set_module(nn.Linear(2, 2))
    assert allocators == expected and FakePool.freed == len(expected)
