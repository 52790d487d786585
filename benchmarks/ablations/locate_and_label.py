"""What each part of locate_and_label_ner is worth: the rows of the paper's table 3, what its
authors ran, and seeds shorter than the entities; one setting changed at a time, equal steps.

python -m benchmarks.ablation locate_and_label corpus/genia/train.spacy corpus/genia/dev.spacy
"""

from benchmarks.ablations import Variants

CONFIG = "locate_and_label_cnn"
SHORT = {"lengths": [1, 2, 3, 4, 5, 6, 7, 8]}
VARIANTS: Variants = {
    "recommended": {},
    "a BiLSTM": {"lstm_layers": 1},
    "spans know their neighbours": {"grid_width": 48},
    "soft-NMS as the authors ran it": {"run_time": {"nms_iou": 0.6, "nms_decay": 0.9}},
    "no soft-NMS": {"run_time": {"nms_decay": 1.0}},
    "no regressor": {"regressor": None},
    "no filter": {"span_filter": False},
    "no soft examples": {"soft_examples": False},
    "sigmoid regressor": {"regressor": "sigmoid"},
    "softmax classifier": {"classifier": "softmax"},
    "5 negatives for a positive": {"negatives": 5.0},
    "classifier and regressor learn from all seeds": {"rejected_share": 1.0},
    "from none that the filter rejects": {"rejected_share": 0.0},
    "seeds of 1-8 words": SHORT,
    "seeds of 1-8 words, no regressor": {**SHORT, "regressor": None},
}
