"""What each part of diffusion_ner is worth: its additions to the paper, taken away one by one, the
rows of the paper's tables 5 and 6, and how None is learned; one table.

python -m benchmarks.ablation diffusion corpus/genia/train.spacy corpus/genia/dev.spacy
"""

from dataclasses import replace
from typing import Any, Dict

from benchmarks.ablations import Variants
from spacy_nested_ner.systems.diffusion import settings

CONFIG = "diffusion_cnn"

# Forms of the head that differ from the default in one choice; each is a variant of its name.
FORMS: Dict[str, Dict[str, Any]] = {
    "from noise": {"truncation": 1.0},
    "from a tenth of the noise": {"truncation": 0.1},
    "one kind of spans": {"span_kinds": 1},
    "no distance bias": {"offset_reach": 0},
    "no answer pooling": {"answer_pooling": False},
    "losses after the last layer only": {"auxiliary": False},
    "independent boundaries": {"boundary": "sigmoid"},
    "additive pointer": {"pointer": "additive"},
    "entities for far spans, too": {"match_reach": None},
    "no distance in the matching": {"match_distance": 0.0, "match_reach": None},
    "one-to-one matching": {"assignment": "one_to_one"},
    "None for the unmatched, one-to-one": {"assignment": "one_to_one", "none": "unmatched"},
    "None as the authors learn it": {
        "assignment": "balanced",
        "none": "unmatched",
        "none_weight": None,
        "match_reach": None,
    },
    "spans as their mean": {"span_pooling": "mean"},
    "spans as their boundaries": {"span_pooling": "boundaries"},
    "left and width": {"with_width": True},
}
for name, changes in FORMS.items():
    settings.VARIANTS[name] = replace(settings.VARIANTS["default"], **changes)

PAPER: Dict[str, Any] = {
    "variant": "paper",
    "depth": 1,
    "lstm_layers": 2,
    "attention_heads": 8,
    "scale": 1.0,
    "n_spans": 60,
    "repetition": 0.0,
    "component": {
        "found_in": "last_step",
        "score": "sum",
        "steps": 5,
        "n_spans": 60,
        "labels_per_span": 1,
    },
}
VARIANTS: Variants = {
    "recommended": {},
    "spans of the last step": {"run_time": {"found_in": "last_step"}},
    "scored by label and pointers": {"run_time": {"score": "sum"}},
    "no candidates": {"candidate_weight": 0.0, "run_time": {"score": "sum"}},
    "two layers": {"depth": 2},
    "a BiLSTM": {"lstm_layers": 1},
    "a noisy span for each word": {"spans_per_word": 1.0},
    "scores of words in the pointers": {"word_weight": 2.0},
    "words of 256": {"word_width": 256},
    "words of 256, and scores of words": {"word_weight": 2.0, "word_width": 256},
    # Of one layer there is no other loss.
    **{name: {"variant": name} for name in FORMS if name != "losses after the last layer only"},
    "no answer pooling": {"variant": "no answer pooling", "run_time": {"score": "sum"}},
    "two layers, losses after the last only": {
        "variant": "losses after the last layer only",
        "depth": 2,
    },
    "linear schedule": {"schedule": "linear"},
    "1500 timesteps": {"timesteps": 1500},
    "scale 1": {"scale": 1.0},
    "random spans": {"repetition": 0.0},
    "repeated entities": {"repetition": 1.0},
    "60 spans": {"n_spans": 60},
    "the paper's form": PAPER,
    "the authors' form": {
        **PAPER,
        "variant": "authors",
        "depth": 2,
        "repetition": 1.0,
        "component": {
            "found_in": "last_step",
            "score": "sum",
            "steps": 5,
            "n_spans": 60,
            "eta": 1.0,
            "overlap": "no_crossing",
        },
    },
}
