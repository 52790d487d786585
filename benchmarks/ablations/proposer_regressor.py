"""What each part of proposer_regressor_ner is worth: the rows of the paper's table 6 and some of
table 7, one setting changed at a time, equal steps, one table.

python -m benchmarks.ablation proposer_regressor corpus/genia/train.spacy corpus/genia/dev.spacy
"""

from benchmarks.ablations import Variants

CONFIG = "proposer_regressor_cnn"
VARIANTS: Variants = {
    "recommended": {},
    "no backward block": {"backward_block": False},
    "no spatial modulation": {"spatial_modulation": False},
    "no gated update": {"gated_update": False},
    "no category embedding": {"category_embedding": False},
    "no location iteration": {"location_iteration": False},
    "no logits iteration": {"logits_iteration": False},
    "no pyramid (kernel sizes [])": {"kernel_sizes": []},
    "kernel sizes [2, 3]": {"kernel_sizes": [2, 3]},
    "no regressor": {"regressor_layers": 0},
    "one proposal per word": {"min_proposals": 0},
    "None weight 0.5": {"none_weight": 0.5},
    "pyramid of width 64": {"pyramid_width": 64},
}
