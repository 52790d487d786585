"""What each part of proposer_regressor_ner is worth: the rows of the paper's table 6 and some of
table 7, one setting changed at a time, equal steps, one table.

python -m benchmarks.ablation proposer_regressor corpus/genia/train.spacy corpus/genia/dev.spacy
"""

from benchmarks.ablations import Variants

CONFIG = "proposer_regressor_cnn"
VARIANTS: Variants = {
    "recommended": {},
    "labels of the proposals alone": {"classifier": "proposal"},
    "pyramid, no backward block": {"kernel_sizes": [2, 2], "without": ["backward_block"]},
    "no spatial modulation": {"without": ["spatial_modulation"]},
    "no gated update": {"without": ["gated_update"]},
    "no category embedding": {"without": ["category_embedding"]},
    "no location iteration": {"without": ["location_iteration"]},
    "no logits iteration": {"without": ["logits_iteration"]},
    "pyramid (kernel sizes [2, 2])": {"kernel_sizes": [2, 2]},
    "kernel sizes [2, 3]": {"kernel_sizes": [2, 3]},
    "three regressor layers": {"regressor_layers": 3},
    "no regressor": {"regressor_layers": 0},
    "one proposal per word": {"min_proposals": 0},
}
