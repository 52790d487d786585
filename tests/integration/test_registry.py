"""What the distribution registers, and what it costs an environment that never uses it."""

import ast
import re
import subprocess
import sys
from importlib.metadata import EntryPoint, distribution
from typing import List, Tuple

import pytest
import spacy
import thinc.api
from spacy.language import Language

REGISTERED = [
    ("spacy_architectures", "spacy_nested_ner.Diffusion.v1"),
    ("spacy_architectures", "spacy_nested_ner.EnglishCNN.v1"),
    ("spacy_architectures", "spacy_nested_ner.HybridEncoder.v1"),
    ("spacy_architectures", "spacy_nested_ner.LayerMeanTransformer.v1"),
    ("spacy_architectures", "spacy_nested_ner.LocateAndLabel.v1"),
    ("spacy_architectures", "spacy_nested_ner.MRC.v1"),
    ("spacy_architectures", "spacy_nested_ner.PIQN.v1"),
    ("spacy_architectures", "spacy_nested_ner.PairEncoder.v1"),
    ("spacy_architectures", "spacy_nested_ner.ProposerRegressor.v1"),
    ("spacy_architectures", "spacy_nested_ner.QueryEncoder.v1"),
    ("spacy_architectures", "spacy_nested_ner.SortedTransformer.v1"),
    ("spacy_architectures", "spacy_nested_ner.Tok2VecLayerMeanTransformer.v1"),
    ("spacy_batchers", "spacy_nested_ner.batch_by_words.v1"),
    ("spacy_batchers", "spacy_nested_ner.until_time_is_up.v1"),
    ("spacy_callbacks", "spacy_nested_ner.fit_threshold.v1"),
    ("spacy_cli", "nested-ner"),
    ("spacy_factories", "diffusion_ner"),
    ("spacy_factories", "locate_and_label_ner"),
    ("spacy_factories", "mrc_ner"),
    ("spacy_factories", "piqn_ner"),
    ("spacy_factories", "proposer_regressor_ner"),
    ("spacy_loggers", "spacy_nested_ner.ConsoleLogger.v1"),
    ("spacy_misc", "spacy_nested_ner.eval_frequency.v1"),
    ("spacy_scorers", "spacy_nested_ner.nested_scorer.v1"),
    ("thinc_layers", "spacy_nested_ner.reduce_max.v1"),
    ("thinc_optimizers", "spacy_nested_ner.AdamW.v1"),
    ("thinc_schedules", "spacy_nested_ner.linear_over_time.v1"),
    ("thinc_schedules", "spacy_nested_ner.two_stage_linear.v1"),
    ("thinc_schedules", "spacy_nested_ner.warmup_cosine.v1"),
    ("thinc_schedules", "spacy_nested_ner.warmup_linear.v1"),
]


def entry_points() -> List[EntryPoint]:
    found = distribution("spacy_nested_ner").entry_points
    return [ep for ep in found if ep.group.startswith(("spacy_", "thinc_"))]


def test_registered_names() -> None:
    """A name that is taken away or renamed breaks saved pipelines."""
    assert sorted((ep.group, ep.name) for ep in entry_points()) == REGISTERED


@pytest.mark.parametrize(("group", "name"), REGISTERED)
def test_every_name_resolves(group: str, name: str) -> None:
    (entry_point,) = [ep for ep in entry_points() if (ep.group, ep.name) == (group, name)]
    loaded = entry_point.load()
    assert callable(loaded)
    if group == "spacy_factories":
        spacy.blank("en")  # loads the factories of all distributions
        assert Language.has_factory(name)
    elif group != "spacy_cli":
        registry = thinc.api.registry if group.startswith("thinc_") else spacy.registry
        assert getattr(registry, group.split("_", 1)[1]).get(name) is loaded


def run_python(code: str) -> Tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.strip() or done.stderr


def test_importing_the_package_and_its_factories_is_light() -> None:
    """Compared with spaCy alone, which imports torch by itself; spaCy loads every installed
    factory, so only what this package adds counts."""
    code = (
        "import sys, thinc.api, spacy; before = set(sys.modules); "
        "import spacy_nested_ner, spacy_nested_ner.pipeline.factories; "
        "added = set(sys.modules) - before; "
        "print(sorted(m for m in added if m.startswith('spacy_nested_ner'))); "
        "print({m for m in added if '.' not in m}); "
        "print([m for m in added if hasattr(sys.modules[m], 'torch')])"
    )
    status, out = run_python(code)
    assert status == 0, out
    ours, packages, with_torch = map(ast.literal_eval, out.splitlines())
    assert packages == {"spacy_nested_ner"} and not with_torch
    assert "spacy_nested_ner.pipeline.factories" in ours and len(ours) < 30
    heavy = (
        r"\.(head|component|head_model|figures|drawing)$|\.(encoders|layers|evaluation|corpora)\b"
    )
    assert not [name for name in ours if re.search(heavy, name)]


BLANK_WITHOUT = """
import sys
from importlib import metadata

sys.modules[{broken!r}] = None  # any import of it raises ImportError
import catalogue

installed = [metadata.distribution(name) for name in {installed!r}]
catalogue.AVAILABLE_ENTRY_POINTS = metadata.EntryPoints(
    each for package in installed for each in package.entry_points
)
import spacy
from spacy.language import Language

nlp = spacy.blank("en")
nlp.add_pipe("sentencizer")
assert Language.has_factory("piqn_ner")
print(len(list(nlp("One. Two.").sents)))
"""


@pytest.mark.parametrize("broken", ["transformers", "scipy", "safetensors", "torch"])
def test_a_broken_dependency_does_not_break_spacy(broken: str) -> None:
    """`spacy.blank` loads every installed factory and logger: ours must load even where it cannot
    work. Those of other distributions are hidden; spacy-transformers' factory does break. The
    logger of spaCy's own config is in spacy-legacy: without that spaCy looks for none."""
    code = BLANK_WITHOUT.format(broken=broken, installed=["spacy_nested_ner", "spacy-legacy"])
    assert run_python(code) == (0, "2")
