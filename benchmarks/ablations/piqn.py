"""What makes piqn_ner learn quickly: one setting changed at a time, equal steps, one table.

python -m benchmarks.ablation piqn corpus/genia/train.spacy corpus/genia/dev.spacy
"""

from typing import Any, Dict

from benchmarks.ablations import Variants

CONFIG = "piqn_cnn"
LEARNED: Dict[str, Any] = {
    "query_source": "learned",
    "n_queries": 60,
    "quantity": 0.5,
}
VARIANTS: Variants = {
    "recommended": {},
    "no anchors in the matching": {"match_anchor": 0.0},
    "one-to-one assignment": {"assignment": "one_to_one"},
    "quantity 0.2": {"quantity": 0.2},
    "static assignment": {"assignment": "static"},
    "no query interaction": {"query_interaction": False},
    "60 learned queries": LEARNED,
    "60 learned queries, the paper's variant": {**LEARNED, "variant": "paper"},
}
