"""What each part of mrc_ner is worth: the paper's kinds of queries (section 5.2), the loss of its early
version, and fewer questions without an answer; one setting changed at a time, equal steps, one table.

python -m benchmarks.ablation mrc corpus/genia/train.spacy corpus/genia/dev.spacy --transformer DIRECTORY --train-limit 400 --steps 300
"""  # noqa: E501

from benchmarks.ablations import Variants

CONFIG = "mrc_transformer"
VARIANTS: Variants = {
    "natural questions": {},
    "pseudo questions": {"query_kind": "pseudo"},
    "index questions": {"query_kind": "index"},
    "half of the unanswered questions": {"unanswered_share": 0.5},
    "a quarter of the unanswered questions": {"unanswered_share": 0.25},
    "nearest end instead of a match": {"pairing": "nearest"},
    "match of start and end alone": {"pairing": "match"},
    "dice loss": {"boundary_loss": "dice"},
    "nearest end and dice loss": {"pairing": "nearest", "boundary_loss": "dice"},
    "match of predicted pairs": {"candidates": "gold_and_predicted"},
    "match of gold pairs": {"candidates": "gold"},
    "match of all pairs": {"candidates": "all"},
    "all layers together": {"tok2vec": {"joint_layers": None}, "batch_words": 512},
    "top 2 layers together": {"tok2vec": {"joint_layers": 2}, "batch_words": 512},
    "top layer together": {"tok2vec": {"joint_layers": 1}, "batch_words": 512},
    "late interaction": {"tok2vec": {"joint_layers": 0}},
}
