"""What adversarial training of a pretrained encoder gains, in equal time or at equal steps; with
`--config` for another system than locate_and_label_ner.

python -m benchmarks.ablation transformer corpus/genia/train.spacy corpus/genia/dev.spacy --transformer DIRECTORY --mixed-precision --train-limit 4000 --minutes 9
"""  # noqa: E501

from benchmarks.ablations import Variants

CONFIG = "locate_and_label_transformer"
VARIANTS: Variants = {
    "adversarial training": {"component": {"adversarial": 1.0}},
    "without": {"component": {"adversarial": 0.0}},
}
