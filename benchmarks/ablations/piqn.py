"""What makes piqn_ner learn quickly: one setting changed at a time, equal steps, one table.

python -m benchmarks.ablation piqn corpus/genia/train.spacy corpus/genia/dev.spacy
"""

from typing import Any, Dict

from benchmarks.ablations import Variants

CONFIG = "piqn_cnn"
LEARNED: Dict[str, Any] = {
    "query_source": "learned",
    "n_queries": 60,
    "match_anchor": 0.0,
    "quantity": 0.5,
}
VARIANTS: Variants = {
    "recommended": {},
    "no anchors in the matching": {"match_anchor": 0.0},
    "one-to-one assignment": {"assignment": "one_to_one"},
    "quantity 0.75": {"quantity": 0.75},
    "None balanced": {"none_weight": None},
    "None weight 1": {"none_weight": 1.0},
    "losses after the last block only": {"auxiliary": False},
    "no span pooling": {"span_pooling": False},
    "independent boundaries": {"boundary": "sigmoid"},
    "no distance bias": {"offset_reach": 0},
    "60 learned queries, bilinear": LEARNED,
    "60 learned queries, additive, independent boundaries": {
        **LEARNED,
        "pointer": "additive",
        "boundary": "sigmoid",
        "span_pooling": False,
        "none_weight": None,
    },
}
