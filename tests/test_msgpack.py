"""How srsly packs after this package has been imported."""

import subprocess
import sys

import catalogue
import numpy as np
import pytest
import srsly
from srsly.msgpack import msgpack_decoders, msgpack_encoders

from spacy_nested_ner.msgpack import ask_packages_once


@pytest.mark.parametrize("module", ["pipeline.component", "corpora.docbin"])
def test_who_packs_docs_has_asked(module):
    code = (
        f"import spacy_nested_ner.{module}; from srsly.msgpack import msgpack_decoders as d, "
        "msgpack_encoders as e; print(d.entry_points, e.entry_points)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_packages_are_not_asked_again(monkeypatch):
    ask_packages_once()

    def asked(registry):
        raise AssertionError(registry.namespace)

    monkeypatch.setattr(catalogue.Registry, "get_entry_points", asked)
    found = srsly.msgpack_loads(srsly.msgpack_dumps({"a": np.arange(3), "b": [1]}))
    assert found["a"].tolist() == [0, 1, 2] and found["b"] == [1]
    assert "numpy" in msgpack_decoders.get_all() and "numpy" in msgpack_encoders.get_all()


def test_what_packages_offer_is_registered(monkeypatch):
    class Offered:
        name = "offered"

        @staticmethod
        def load():
            return len

    registry = catalogue.create("spacy_nested_ner", "tests", "msgpack", entry_points=True)
    registry.register("own", func=max)
    monkeypatch.setattr(registry, "_get_entry_points", lambda: [Offered])
    ask_packages_once([registry])
    monkeypatch.setattr(registry, "_get_entry_points", lambda: [])
    assert registry.get_all() == {"own": max, "offered": len}
