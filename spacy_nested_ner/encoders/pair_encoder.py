"""A pretrained encoder that reads question and sentence as one input (BERT-MRC section 3.3.1)."""

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from thinc.api import Model
from torch import Tensor, nn

from spacy_nested_ner.device import on_device
from spacy_nested_ner.encoders.apart import LateShim, late_shim, read_apart
from spacy_nested_ner.encoders.piece_windows import Joint, cut_long
from spacy_nested_ner.encoders.pretrained import (
    ROBERTA_TYPES,
    FineTuning,
    PretrainedShim,
    first_position,
)
from spacy_nested_ner.encoders.protocol import PairEncoderModel, PairInput, PairReading, no_backprop
from spacy_nested_ner.encoders.question_cache import QuestionCache
from spacy_nested_ner.encoders.shim import called_by_its_parent, running
from spacy_nested_ner.layers.split_encoder import SplitEncoder
from spacy_nested_ner.settings import configured, setting

ARCHITECTURE = "spacy_nested_ner.PairEncoder.v1"

Backprop = Callable[[], List[Any]]
# First and end piece of each window of a long sentence, and how they become one.
Windows = Tuple[List[Tuple[int, int]], Joint]


@dataclass(frozen=True)
class PairEncoderSettings(FineTuning):
    """Of `PairEncoder.v1`.

    joint_layers: how many of the top layers read question and sentence together. The layers below
        read them separately, a sentence once for all questions. null: all layers, as in the paper;
        0: none, words attend to the question in one narrow layer after the encoder.
    max_pieces: longest input in pieces, special ones included; null for the encoder's limit.
    gradient_checkpointing: a training step keeps only the input of each layer and computes the
        rest again in the backward pass: less memory for many labels, more time. It can be set in
        `attrs` of a trained model.
    """

    joint_layers: Optional[int] = setting(None, least=0, source="benchmarks/ablations")
    max_pieces: Optional[int] = setting(None, least=8)
    gradient_checkpointing: bool = setting(False)

    def conflict(self) -> Optional[str]:
        if self.frozen_layers and self.joint_layers is None:
            return "frozen_layers needs a number in joint_layers: with null all layers read both"
        return None


@configured(ARCHITECTURE, PairEncoderSettings)
def build_pair_encoder(name: str, settings: PairEncoderSettings) -> PairEncoderModel:
    """`spacy_nested_ner.PairEncoder.v1`: question and sentence through a pretrained encoder, with
    segment ids where it has two of them: `[CLS] question [SEP] sentence [SEP]`, or, below the joint
    layers, `[CLS] question [SEP]` and `[CLS] sentence [SEP]`, each from position 0 on and once.

    The weights are read when the model is initialised; a saved model carries them and its
    tokenizer and needs neither the directory nor the hub. Dropout is the encoder's own. Text is
    read as the tokenizer was made for, cased or not.

    What is too long is read in several inputs: windows of the sentence, which hold whole words and
    overlap by half, each with the whole question. Each word is taken from the window in which it is
    most central. Nothing is cut off.

    The model takes a `PairInput` and gives a `PairReading`. The vector of a word is that of its
    first piece followed by that of its last, `2 h` wide; without joint layers it is one vector,
    about `h / 2` wide, of a layer that belongs to the node `model.layers[0]`. Zeros for a token
    without pieces. Questions that are read apart are kept between predictions. Raises
    ValueError for a setting out of range; when initialised, for a model that cannot be found or is
    not supported; when called, for a question that leaves a sentence less than a quarter of the
    input.

    name: directory or hub name of a model of the BERT or RoBERTa family with a fast tokenizer.
    """
    attrs = settings.to_dict()
    shim = PairShim(name, attrs.pop("max_pieces"), attrs.pop("int8"), attrs.pop("joint_layers"))
    late: List[Model[Any, Any]] = []
    if settings.joint_layers == 0:
        own = {"dropout_rate": 0.0}
        late.append(Model("late_interaction", called_by_its_parent, shims=[LateShim()], attrs=own))
    return PairEncoderModel(
        "pair_encoder",
        forward,
        init=init,
        layers=late,
        dims={"nO": None},
        attrs={"two_sided": not late, **attrs},
        shims=[shim],
    )


def init(model: PairEncoderModel, X: Any = None, Y: Any = None) -> None:
    """Read the pretrained weights."""
    shim = pair_shim(model)
    shim.load()
    width = shim.config["hidden_size"]
    late = late_shim(model)
    model.set_dim("nO", 2 * width if late is None else late.build_for(width), force=True)


def pair_shim(model: PairEncoderModel) -> "PairShim":
    """The shim that holds the pretrained encoder and its tokenizer."""
    return model.shims[0]  # type: ignore[return-value]


def forward(model: PairEncoderModel, X: PairInput, is_train: bool) -> Tuple[PairReading, Backprop]:
    """Tokenise docs and questions; `PairReading.read` encodes pairs of them."""
    shim = pair_shim(model)
    encoder = shim.module
    if shim.reads_apart:
        return read_apart(model, shim, X, is_train), no_backprop
    learns = is_train and shim.frozen_layers(model.attrs) < shim.n_layers
    _set_checkpointing(encoder, learns and model.attrs["gradient_checkpointing"])
    questions = [shim.question(text) for text in X.questions]
    sentences = _sentences(shim, X)
    segment, question = X.pairs.T
    sizes = np.array([len(s.ids) for s in sentences], dtype=np.int64)[segment]
    rooms = np.array([shim.room(ids) for ids in questions], dtype=np.int64)[question]
    joints: Dict[int, Windows] = {
        int(i): cut_long(sentences[segment[i]].counts, int(rooms[i]))
        for i in np.flatnonzero(sizes > rooms)
    }

    def read(batch: np.ndarray) -> Tuple[Tensor, Tensor]:
        pairs = [
            Pair(questions[question[i]], sentences[segment[i]], joints.get(int(i))) for i in batch
        ]
        with running(learns, encoder, mixed_precision=model.attrs["mixed_precision"]):
            return _encode(shim, pairs)

    lengths = sizes + shim.max_pieces - rooms
    for i, (bounds, joint) in joints.items():
        lengths[i] = joint.n_read + len(bounds) * (shim.max_pieces - rooms[i])
    return PairReading(lengths, read), no_backprop


def _set_checkpointing(encoder: Any, wanted: bool) -> None:
    """Hugging Face's own, in training mode only. Set each time: the encoder may be a copy."""
    if not wanted:
        encoder.gradient_checkpointing_disable()
        return
    settings = {"use_reentrant": False, "context_fn": lambda: computed_again(encoder)}
    encoder.gradient_checkpointing_enable(settings)


def computed_again(encoder: nn.Module) -> Tuple[Any, Any]:
    """Contexts of a layer under gradient checkpointing, the first time and on the way back: what is
    computed again needs its dropout again, but the encoder is in evaluation mode by then."""
    return contextlib.nullcontext(), running(True, encoder)


class SegmentPieces(NamedTuple):
    """A segment in pieces: `(pieces,)` long ids, and `(words,)` int, how many each word has."""

    ids: np.ndarray
    counts: np.ndarray


class Pair(NamedTuple):
    """A question, `(pieces,)` long, a sentence, and its windows where it is too long for one."""

    question: np.ndarray
    sentence: SegmentPieces
    windows: Optional[Windows]


def _sentences(shim: "PairShim", X: PairInput) -> List[SegmentPieces]:
    """The pieces of each segment; its doc is tokenised once."""
    pieces = shim.pieces_of_segments(X.docs, X.segments)
    sentences = []
    for doc, start, end in X.segments.tolist():
        ids, offsets = pieces[doc]
        counts = np.diff(offsets[start : end + 1])
        sentences.append(SegmentPieces(ids[offsets[start] : offsets[end]], counts))
    return sentences


def _encode(shim: "PairShim", pairs: List[Pair]) -> Tuple[Tensor, Tensor]:
    """Vectors `(pairs, words, 2 h)` of the sentences' words, and their bool mask."""
    inputs: List[Tuple[np.ndarray, np.ndarray]] = []
    first_input = []
    for pair in pairs:
        first_input.append(len(inputs))
        pieces = pair.sentence.ids
        bounds = [(0, len(pieces))] if pair.windows is None else pair.windows[0]
        inputs.extend((pair.question, pieces[begin:end]) for begin, end in bounds)
    device = shim.device
    ids, types, mask = (on_device(array, device) for array in shim.pad(inputs))
    states = shim.read(ids, mask, types).float()
    places, words, has_piece = (
        on_device(array, device)
        for array in _places_of_words(shim, pairs, first_input, states.shape[1])
    )
    flat = states.flatten(0, 1)
    both = torch.cat([F.embedding(ends, flat) for ends in places], dim=-1)
    return both.masked_fill(~has_piece.unsqueeze(-1), 0.0), words


def _places_of_words(
    shim: "PairShim", pairs: List[Pair], first_input: List[int], width: int
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the first and last piece of each word stand among those of all inputs.

    first_input: of each pair. width: of the padded inputs. Returns `(2, pairs, words)` int, and
    `(pairs, words)` bool which of them are words and which of those have pieces.
    """
    shape = len(pairs), max(len(pair.sentence.counts) for pair in pairs)
    places = np.zeros((2, *shape), dtype=np.int64)
    words, has_piece = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for i, (pair, row) in enumerate(zip(pairs, first_input)):
        counts = pair.sentence.counts
        real, ends = np.flatnonzero(counts), np.cumsum(counts)
        words[i, : len(counts)] = True
        has_piece[i, real] = True
        place = _places(pair, row, width, shim.skip(pair.question))
        places[0, i, real] = place[(ends - counts)[real]]
        places[1, i, real] = place[ends[real] - 1]
    return places, words, has_piece


def _places(pair: Pair, row: int, width: int, skip: int) -> np.ndarray:
    """Where each piece of a sentence stands among those of all inputs, `(pieces,)` int.

    row: the pair's first input. width: of the padded inputs. skip: pieces before the sentence.
    """
    if pair.windows is None:
        return row * width + skip + np.arange(len(pair.sentence.ids))
    bounds, joint = pair.windows
    begins = [(row + k) * width + skip for k in range(len(bounds))]
    read = [begin + np.arange(b - a) for begin, (a, b) in zip(begins, bounds)]
    return np.concatenate(read)[joint.chosen]


class PairShim(PretrainedShim):
    """Holds the encoder of pairs and its tokenizer; see `PretrainedShim`."""

    def __init__(
        self, name: str, max_pieces: Optional[int], int8: bool, joint_layers: Optional[int]
    ) -> None:
        super().__init__(ARCHITECTURE, name, max_pieces, int8, {"joint_layers": joint_layers})
        self._questions: Dict[str, np.ndarray] = {}
        # As they were read last, where they are read apart.
        self.question_cache = QuestionCache()

    def wrap(self, pretrained: Any) -> nn.Module:
        """As in the base; questions are tokenised and read again."""
        self._questions, self.question_cache = {}, QuestionCache()
        n_layers, wanted = self.n_layers, self.joint_layers
        if wanted is not None and wanted > n_layers:
            raise ValueError(
                f"{ARCHITECTURE}: joint_layers is {wanted}, but '{self.name}' has {n_layers} "
                "layers. Set it to at most that, or to null for all of them."
            )
        return super().wrap(pretrained)

    def with_int8(self, module: nn.Module) -> nn.Module:
        """As in the base. ValueError for an encoder that reads questions and sentences apart."""
        if self.reads_apart:
            raise ValueError(
                f"{ARCHITECTURE}: int8 needs joint_layers = null: an encoder that reads questions "
                "and sentences separately calls the parts of its layers one by one."
            )
        return super().with_int8(module)

    @property
    def joint_layers(self) -> Optional[int]:
        """How many layers read both; None for all, as in pipelines of before there was a choice."""
        return self.settings.get("joint_layers")

    @property
    def reads_apart(self) -> bool:
        """Whether a sentence is read once for all questions."""
        joint = self.joint_layers
        return joint is not None and joint < self.n_layers

    def frozen_layers(self, attrs: Mapping[str, Any]) -> int:
        """As in the base. ValueError, too, for joint layers among them, unless all are frozen."""
        frozen, n_layers = super().frozen_layers(attrs), self.n_layers
        joint = n_layers if self.joint_layers is None else self.joint_layers
        if n_layers - joint < frozen < n_layers:
            raise ValueError(
                f"{ARCHITECTURE}: frozen_layers is {frozen}, but of {n_layers} layers the upper "
                f"{joint} read question and sentence together and have to learn. Set it to at most "
                f"{n_layers - joint}, or set frozen to true."
            )
        return frozen

    def split(self, checkpointing: bool) -> SplitEncoder:
        """The encoder for texts that are read apart. checkpointing: in this training step."""
        again = partial(computed_again, self.module) if checkpointing else None
        return SplitEncoder(self.module, self.joint_layers or 0, first_position(self.config), again)

    @property
    def sentence_type(self) -> int:
        """Token type of a sentence; a question has 0."""
        return int(self.config["type_vocab_size"] > 1)

    @property
    def n_separators(self) -> int:
        """Between question and sentence: RoBERTa has two."""
        return 2 if self.config["model_type"] in ROBERTA_TYPES else 1

    def question(self, text: str) -> np.ndarray:
        """Pieces of a question, `(pieces,)` long. Each is tokenised once."""
        if text not in self._questions:
            self._questions[text] = self._question(text)
        return self._questions[text]

    def _question(self, text: str) -> np.ndarray:
        assert self._tokenizer is not None
        ids = np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)
        if self.room(ids) < self.max_pieces // 4:
            raise ValueError(
                f"{ARCHITECTURE}: the question '{text}' has {len(ids)} pieces and leaves room for "
                f"{max(0, self.room(ids))} of the sentence, less than a quarter of the "
                f"{self.max_pieces} of an input. Use a shorter question or a larger max_pieces."
            )
        return ids

    def skip(self, question: np.ndarray) -> int:
        """Pieces before the sentence."""
        return 1 + len(question) + self.n_separators

    def room(self, question: np.ndarray) -> int:
        """Pieces of a sentence that fit beside a question."""
        return self.max_pieces - self.skip(question) - 1

    def pad(
        self, inputs: List[Tuple[np.ndarray, np.ndarray]]
    ) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Questions and sentences in pieces to `(inputs, pieces)` ids, token types and mask.

        The sentence and the separator after it are of type 1 where the encoder has two types.
        """
        shape = len(inputs), max(self.skip(q) + len(s) + 1 for q, s in inputs)
        ids = np.full(shape, self.special["pad"], dtype=np.int64)
        types, mask = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
        for i, (question, sentence) in enumerate(inputs):
            skip, end = self.skip(question), self.skip(question) + len(sentence)
            ids[i, 0] = self.special["cls"]
            ids[i, 1 : 1 + len(question)] = question
            ids[i, 1 + len(question) : skip] = ids[i, end] = self.special["sep"]
            ids[i, skip:end] = sentence
            types[i, skip : end + 1] = self.sentence_type
            mask[i, : end + 1] = True
        return ids, types, mask
