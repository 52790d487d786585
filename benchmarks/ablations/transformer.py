"""What keeps a pretrained encoder from learning few sentences by heart: masked pieces, adversarial
training, both, neither; with `--config` for another system than locate_and_label_ner.

python -m benchmarks.ablation transformer corpus/genia/train.spacy corpus/genia/dev.spacy --transformer DIRECTORY --mixed-precision --train-limit 4000 --minutes 9
"""  # noqa: E501

from benchmarks.ablations import Variants

CONFIG = "locate_and_label_transformer"
VARIANTS: Variants = {
    name: {"tok2vec": {"masked_pieces": masked}, "component": {"adversarial": adversarial}}
    for name, masked, adversarial in (
        ("neither", 0.0, 0.0),
        ("adversarial training", 0.0, 1.0),
        ("masked pieces", 0.15, 0.0),
        ("masked pieces and adversarial training", 0.15, 1.0),
    )
}
