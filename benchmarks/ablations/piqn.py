"""What makes piqn_ner learn quickly: one setting changed at a time, equal steps, one table.

python -m benchmarks.ablation piqn corpus/genia/train.spacy corpus/genia/dev.spacy
"""

from dataclasses import replace
from typing import Any, Dict

from benchmarks.ablations import Variants
from spacy_nested_ner.systems.piqn import settings

CONFIG = "piqn_cnn"

# Forms of the head that differ from the default in one choice; each is a variant of its name.
FORMS: Dict[str, Dict[str, Any]] = {
    "entities for far queries, too": {"match_reach": None},
    "no candidates": {"candidates": False},
    "a classifier on the words of the blocks": {"early_words": False},
}
for name, changes in FORMS.items():
    settings.VARIANTS[name] = replace(settings.VARIANTS["default"], **changes)

# The reach of an entity would undo what these rows change.
FAR_TOO = {"variant": "entities for far queries, too"}
LEARNED: Dict[str, Any] = {
    "query_source": "learned",
    "n_queries": 60,
    "quantity": 0.5,
}
VARIANTS: Variants = {
    "recommended": {},
    **{name: {"variant": name} for name in FORMS},
    "two layers": {"depth": 2},
    "a BiLSTM": {"lstm_layers": 1},
    "no anchors in the matching": {**FAR_TOO, "match_anchor": 0.0},
    "one-to-one assignment": {"assignment": "one_to_one"},
    "quantity 0.2": {"quantity": 0.2},
    "static assignment": {**FAR_TOO, "assignment": "static"},
    "no query interaction": {"query_interaction": False},
    "60 learned queries": LEARNED,
    "60 learned queries, the paper's variant": {**LEARNED, "variant": "paper", "lstm_layers": 1},
}
