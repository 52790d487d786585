"""The heads under test and a batch for them."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Tuple, Type

import torch
from spacy import util
from torch import Tensor, nn

from spacy_nested_ner.model.shim import HeadShim
from spacy_nested_ner.settings import take
from spacy_nested_ner.systems.base import ModelSettings, Options, System
from spacy_nested_ner.systems.diffusion.head import Diffusion
from spacy_nested_ner.systems.diffusion.settings import DiffusionOptions, DiffusionSettings
from spacy_nested_ner.systems.head import Batch, Gold, Head, Loss, Predictions
from spacy_nested_ner.systems.locate_and_label.head import LocateAndLabel
from spacy_nested_ner.systems.locate_and_label.settings import (
    LocateAndLabelOptions,
    LocateAndLabelSettings,
)
from spacy_nested_ner.systems.mrc.head import MRC
from spacy_nested_ner.systems.mrc.settings import MRCOptions, MRCSettings
from spacy_nested_ner.systems.piqn.head import PIQN
from spacy_nested_ner.systems.piqn.settings import PIQNOptions, PIQNSettings
from spacy_nested_ner.systems.proposer_regressor.head import ProposerRegressor
from spacy_nested_ner.systems.proposer_regressor.settings import (
    ProposerRegressorOptions,
    ProposerRegressorSettings,
)

CONFIGS = Path(__file__).parents[2] / "configs"
WIDTH = 10
N_LABELS = 3
# Entities of the three rows of `random_batch`.
GOLD = [[(0, 5, 0), (1, 2, 1), (1, 1, 1), (4, 5, 2)], [(0, 1, 2), (0, 0, 1)], [(0, 0, 0)]]

PIQN_SMALL = {"hidden_width": 16, "attention_heads": 2, "depth": 2}
PIQN_PAPER = {
    **PIQN_SMALL,
    "variant": "paper",
    "lstm_layers": 1,
    "query_source": "learned",
    "n_queries": 12,
    "quantity": 0.75,
}
PROPOSER_SMALL = {"hidden_width": 16, "attention_heads": 2, "regressor_layers": 2}
PROPOSER_PAPER = {
    **PROPOSER_SMALL,
    "classifier": "proposal",
    "kernel_sizes": [2, 2],
    "min_proposals": 0,
}

# The longest entity has six words: the regressor has to reach it from four.
LOCATE_SMALL = {"hidden_width": 16, "lengths": [1, 2, 3, 4], "seed_iou": 0.6, "negatives": None}
LOCATE_PAPER = {"classifier": "softmax"}

DIFFUSION_SMALL = {"hidden_width": 16, "attention_heads": 2, "depth": 2, "n_spans": 12}
DIFFUSION_PAPER = {
    **DIFFUSION_SMALL,
    "variant": "paper",
    "lstm_layers": 1,
    "depth": 1,
    "repetition": 0.0,
}
DIFFUSION_AUTHORS = {
    **DIFFUSION_SMALL,
    "variant": "authors",
    "lstm_layers": 2,
    "schedule": "linear",
    "repetition": 1.0,
}


class MRCPerLabel(Head):
    """MRC behind the least that can encode pairs: a row per label, whose vector joins each word."""

    def __init__(self, width: int, n_labels: int, settings: MRCSettings) -> None:
        super().__init__()
        self.n_labels = n_labels
        self.question = nn.Parameter(torch.randn(n_labels, width))
        self.joined = nn.Sequential(nn.Linear(2 * width, 32), nn.GELU())
        self.head = MRC(32, n_labels, settings)

    def rows(self, words: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        words = words.repeat_interleave(self.n_labels, 0)
        questions = self.question.repeat(len(mask), 1).unsqueeze(1).expand_as(words)
        return self.joined(torch.cat([words, questions], -1)), mask.repeat_interleave(
            self.n_labels, 0
        )

    def losses(self, batch: Batch, gold: Gold) -> Dict[str, Loss]:
        spans, labels, real = (
            t.repeat_interleave(self.n_labels, 0) for t in (gold.spans, gold.labels, gold.mask)
        )
        own = labels == torch.arange(self.n_labels).repeat(len(batch.mask)).unsqueeze(1)
        rows = Batch(*self.rows(batch.words, batch.mask))
        return self.head.losses(rows, Gold(spans, labels, real & own))

    def predict(self, batch: Batch, options: Options) -> Predictions:
        found = self.head.predict(Batch(*self.rows(batch.words, batch.mask)), options)
        segment = found.segment.div(self.n_labels, rounding_mode="floor")
        return found._replace(segment=segment, label=found.segment % self.n_labels)


SETTINGS: Dict[Type[Head], Type[ModelSettings]] = {
    PIQN: PIQNSettings,
    Diffusion: DiffusionSettings,
    LocateAndLabel: LocateAndLabelSettings,
    ProposerRegressor: ProposerRegressorSettings,
    MRCPerLabel: MRCSettings,
}

# The rows of table 6 in the paper, two at a time.
PROPOSER_WITHOUT = {
    "no backward block, no gate": ["backward_block", "gated_update"],
    "no modulation, no category": ["spatial_modulation", "category_embedding"],
    "no iteration": ["location_iteration", "logits_iteration"],
    "neither location nor modulation": ["location_iteration", "spatial_modulation"],
}

# Name: class and settings.
HEADS: Dict[str, Tuple[Type[Head], Dict[str, Any]]] = {
    "piqn": (PIQN, PIQN_SMALL),
    "piqn, paper": (PIQN, PIQN_PAPER),
    "piqn, paper, words": (PIQN, {**PIQN_SMALL, "variant": "paper", "quantity": 0.75}),
    "piqn, learned": (PIQN, {**PIQN_PAPER, "variant": "default"}),
    "piqn, no interaction": (PIQN, {**PIQN_PAPER, "query_interaction": False}),
    "piqn, one to one": (PIQN, {**PIQN_PAPER, "assignment": "one_to_one"}),
    "piqn, two per word": (PIQN, {**PIQN_SMALL, "queries_per_word": 2}),
    "diffusion": (Diffusion, DIFFUSION_SMALL),
    "diffusion, candidates and scores of words": (
        Diffusion,
        {**DIFFUSION_SMALL, "candidate_weight": 1.0, "word_weight": 2.0, "word_width": 24},
    ),
    "diffusion, paper": (Diffusion, DIFFUSION_PAPER),
    "diffusion, authors": (Diffusion, DIFFUSION_AUTHORS),
    "locate": (LocateAndLabel, LOCATE_SMALL),
    "locate, negatives drawn": (LocateAndLabel, {**LOCATE_SMALL, "negatives": 5.0}),
    "locate, neighbours": (LocateAndLabel, {**LOCATE_SMALL, "grid_width": 8}),
    "locate, paper": (LocateAndLabel, {**LOCATE_SMALL, **LOCATE_PAPER}),
    "locate, sigmoid regressor": (
        LocateAndLabel,
        {**LOCATE_SMALL, "lengths": [1, 2, 3, 4, 5, 6], "regressor": "sigmoid"},
    ),
    "locate, no regressor": (
        LocateAndLabel,
        {**LOCATE_SMALL, "lengths": [1, 2, 3, 4, 5, 6], "regressor": None},
    ),
    "locate, no filter": (LocateAndLabel, {**LOCATE_SMALL, "span_filter": False}),
    "locate, hard examples": (LocateAndLabel, {**LOCATE_SMALL, "soft_examples": False}),
    "proposer": (ProposerRegressor, PROPOSER_SMALL),
    "proposer, paper": (ProposerRegressor, PROPOSER_PAPER),
    **{
        f"proposer, {name}": (
            ProposerRegressor,
            {**PROPOSER_SMALL, "kernel_sizes": [2, 2], "without": parts},
        )
        for name, parts in PROPOSER_WITHOUT.items()
    },
    "proposer, longer kernels": (ProposerRegressor, {**PROPOSER_SMALL, "kernel_sizes": [2, 3]}),
    "mrc": (MRCPerLabel, {}),
    "mrc, early": (MRCPerLabel, {"boundary_loss": "dice"}),
    "mrc, first and last piece": (MRCPerLabel, {"two_sided": True}),
    "mrc, all candidates": (MRCPerLabel, {"candidates": "all"}),
}

# Without distances in the matching it is decided late which entity a noisy span becomes: these are
# shown to learn in tests of their own.
SLOW = ("diffusion, paper", "diffusion, authors")

# Those whose losses draw random numbers, so that the parts of a batch differ from the whole.
RANDOM = (
    "locate, negatives drawn",
    *(name for name in HEADS if name.startswith("diffusion")),
)

# Those with outputs per label, which grow with the labels.
GROWING = tuple(name for name in HEADS if not name.startswith("mrc"))


def build(name: str, n_labels: int = N_LABELS) -> Head:
    """A fresh head, always the same."""
    head_class, settings = HEADS[name]
    torch.manual_seed(0)
    return head_class(WIDTH, n_labels, SETTINGS[head_class](**settings))


def in_pipeline(system: System, settings: ModelSettings, width: int, n_labels: int) -> Head:
    """A head as a pipeline builds it, with its dropout."""
    shim = HeadShim(system, settings)
    shim.build(width, n_labels)
    return shim.module


def from_config(name: str, system: System, width: int, n_labels: int, **more: Any) -> Head:
    """The head of a shipped config. more: settings that its encoder decides."""
    component = util.load_config(CONFIGS / f"{name}.cfg")["components"]["ner"]
    settings = take(system.settings, {**component["model"], **more})
    return in_pipeline(system, settings, width, n_labels)


def random_batch(lengths: Tuple[int, ...] = (6, 3, 1)) -> Tuple[Tensor, Tensor]:
    """Word vectors and mask, rows of different length."""
    torch.manual_seed(1)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return torch.randn(len(lengths), max(lengths), WIDTH), mask


def rows_of(found: Any) -> List[Tuple[int, ...]]:
    """Predictions as sorted, distinct `(row, first word, last word, label)`."""
    return sorted(set(zip(*(column.tolist() for column in list(found)[:4]))))


# Options with which everything is found.
EVERYTHING: Dict[Type[Head], Options] = {
    PIQN: PIQNOptions(threshold=0),
    Diffusion: DiffusionOptions(threshold=0, n_spans=12),
    LocateAndLabel: LocateAndLabelOptions(threshold=0, filter_threshold=0, nms_decay=1),
    ProposerRegressor: ProposerRegressorOptions(threshold=0),
    MRC: MRCOptions(threshold=0, boundary_threshold=0),
    MRCPerLabel: MRCOptions(threshold=0, boundary_threshold=0),
}


def options_of(head: Head, **changes: Any) -> Options:
    """Options of a head with which everything is found, but for these."""
    return replace(EVERYTHING[type(head)], **changes)
