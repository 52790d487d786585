"""A pretrained encoder that reads sentences and questions apart, each once, then their pairs."""

from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from spacy_nested_ner.device import on_device
from spacy_nested_ner.encoders.batching import begins_of, cut_batches, pieces_at_once, spread
from spacy_nested_ner.encoders.packed import read_packed
from spacy_nested_ner.encoders.pair_places import PairPlaces
from spacy_nested_ner.encoders.piece_windows import (
    DocPieces,
    Joint,
    Window,
    cut_windows,
    lengths_of,
)
from spacy_nested_ner.encoders.protocol import PairEncoderModel, PairInput, PairReading
from spacy_nested_ner.encoders.question_cache import state_of
from spacy_nested_ner.encoders.shim import ModuleShim, running
from spacy_nested_ner.layers.dropout import set_dropout
from spacy_nested_ner.layers.late_interaction import LateInteraction
from spacy_nested_ner.layers.split_encoder import Projected, SplitEncoder

if TYPE_CHECKING:
    from spacy_nested_ner.encoders.pair_encoder import PairShim

# Of late interaction. Its width is half of the encoder's, in whole heads.
ATTENTION_HEADS = 4
FEEDFORWARD = 1

# Training or evaluation of what reads, see `running`.
Mode = Callable[[], AbstractContextManager[None]]
# From `(pairs, 2)` int, segment and question, to `(pairs, words, width)` and its bool mask.
ReadPairs = Callable[[np.ndarray], Tuple[Tensor, Tensor]]


class LateShim(ModuleShim):
    """Holds the layer in which words meet a question; its width follows from the encoder's."""

    what = "late interaction"

    def __init__(self) -> None:
        settings = {"attention_heads": ATTENTION_HEADS, "feedforward": FEEDFORWARD}
        super().__init__(LateInteraction, settings)

    def build_for(self, width: int) -> int:
        """Make a fresh layer over an encoder of this width; returns its own width."""
        hidden = ATTENTION_HEADS * max(1, width // (2 * ATTENTION_HEADS))
        self.build(word_width=2 * width, question_width=width, hidden_width=hidden)
        return hidden


def late_shim(model: PairEncoderModel) -> Optional[LateShim]:
    """The shim of late interaction, None where joint layers do its work."""
    # A ref would be lost in a copy.
    return model.layers[0].shims[0] if model.layers else None  # type: ignore[return-value]


def read_apart(
    model: PairEncoderModel, shim: "PairShim", X: PairInput, is_train: bool
) -> PairReading:
    """Read sentences and questions; `PairReading.read` joins pairs of them.

    Sentences that are in no pair are not read. Questions are kept from one prediction to the next.
    """
    used, segment = np.unique(X.pairs[:, 0], return_inverse=True)
    if not len(used):
        return PairReading(np.zeros(0, dtype=np.int64), _no_pairs)
    pairs = np.stack([segment, X.pairs[:, 1]], axis=1)
    segments = X.segments[used]
    pieces = shim.pieces_of_segments(X.docs, segments)
    sentences = Sentences(pieces, segments, room=shim.max_pieces - 2)
    questions = [Window(ids, 0, np.array([len(ids)])) for ids in map(shim.question, X.questions)]
    frozen, mixed = shim.frozen_layers(model.attrs), model.attrs["mixed_precision"]
    learns = is_train and frozen < shim.n_layers
    split = shim.split(checkpointing=learns and model.attrs["gradient_checkpointing"])
    mode = partial(running, learns, shim.module, mixed_precision=mixed)
    late = _late_layer(model, is_train)
    late_mode = partial(running, is_train, late, mixed_precision=mixed) if late else mode

    def read_alone(windows: List[Window], of_type: int) -> Tensor:
        if learns:
            return read_packed(shim, split.lower, windows, frozen, of_type, split.again)
        return read_windows(shim, windows, split.read, of_type)

    def read_questions() -> Any:
        with mode():
            states = read_alone(questions, 0)
        with late_mode():
            return late.read_questions(states) if late else split.project(states)

    if learns or (late and is_train):
        shim.question_cache.stop()
        asked = read_questions()
    else:
        state = state_of(tuple(X.questions), [model])
        asked = shim.question_cache.read(state, read_questions)
    with mode():
        states = read_alone(sentences.windows, shim.sentence_type)
    pool = Pool.of(questions)
    if late:
        read, lengths = read_late(late, late_mode, sentences, pool, states, asked)
    else:
        read, lengths = read_together(split, mode, sentences, pool, states, asked)
    return PairReading(lengths[pairs[:, 0]], lambda batch: read(pairs[batch]))


def _no_pairs(batch: np.ndarray) -> Tuple[Tensor, Tensor]:
    raise ValueError("There are no pairs to read.")


def _late_layer(model: PairEncoderModel, is_train: bool) -> Optional[LateInteraction]:
    """The layer in which words meet a question, None where the encoder's own layers do that."""
    shim = late_shim(model)
    if shim is None:
        return None
    layer: LateInteraction = shim.module
    set_dropout(layer, model.layers[0].attrs["dropout_rate"] if is_train else 0.0)
    return layer


class Pool(NamedTuple):
    """Where the pieces of texts stand that lie one text after the other, [CLS] and [SEP] included.
    begins, lengths: `(texts,)` int."""

    begins: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, windows: List[Window]) -> "Pool":
        """The pool of these texts."""
        lengths = lengths_of(windows)
        return cls(begins_of(lengths), lengths)


def read_windows(
    shim: "PairShim", windows: List[Window], read: Callable[..., Tensor], of_type: int
) -> Tensor:
    """States of the pieces of all windows, `(pieces, h)`, in the order of their `Pool`.

    read: from ids, token types and mask to states. of_type: token type of the windows.
    """
    device = shim.device
    lengths = Pool.of(windows).lengths
    begins, states, total = np.zeros_like(lengths), [], 0
    for batch in cut_batches(lengths, pieces_at_once(device)):
        ids, mask, _ = (on_device(t, device) for t in shim.pad_windows([windows[i] for i in batch]))
        states.append(read(ids, torch.full_like(ids, of_type), mask).flatten(0, 1))
        begins[batch] = total + ids.shape[1] * np.arange(len(batch))
        total += ids.numel()
    places, mask_of_places = spread(begins, lengths)
    index = on_device(places[mask_of_places], device)
    return torch.cat(states).index_select(0, index)


class Sentences:
    """Segments in pieces, those that are too long for the encoder in several windows.

    windows: of all segments, one segment after the other. first_window, n_windows: `(segments,)`
    int. first_word, n_words: `(segments,)` int. ends: `(2, words)` int, where the first and the
    last piece of each word stand in the pool. has_piece: `(words,)` bool.
    """

    def __init__(self, pieces: Dict[int, DocPieces], segments: np.ndarray, room: int) -> None:
        """pieces: of the docs by their index. room: for the pieces of a window."""
        self.windows, joints = cut_windows(pieces, segments, context=0, room=room)
        self.pool = Pool.of(self.windows)
        self.n_windows = np.ones(len(segments), dtype=np.int64)
        for i, joint in joints.items():
            self.n_windows[i] = len(joint.shares)
        self.first_window = begins_of(self.n_windows)
        self.n_words = segments[:, 2] - segments[:, 1]
        self.first_word = begins_of(self.n_words)
        ends, has_piece = [], []
        for i, (doc, start, end) in enumerate(segments.tolist()):
            offsets = pieces[doc][1][start : end + 1] - pieces[doc][1][start]
            # One more, which words without pieces are given.
            places = np.append(self._places(i, joints.get(i)), 0)
            ends.append(places[np.stack([offsets[:-1], offsets[1:] - 1])])
            has_piece.append(np.diff(offsets) > 0)
        self.ends, self.has_piece = np.concatenate(ends, axis=1), np.concatenate(has_piece)

    def _places(self, segment: int, joint: Optional[Joint]) -> np.ndarray:
        """Where the pieces of a segment stand in the pool."""
        first = self.first_window[segment]
        own = range(first, first + self.n_windows[segment])
        read = [self.pool.begins[k] + 1 + np.arange(len(self.windows[k].ids)) for k in own]
        return read[0] if joint is None else np.concatenate(read)[joint.chosen]


def read_together(
    split: SplitEncoder,
    mode: Mode,
    sentences: Sentences,
    asked: Pool,
    states: Tensor,
    questions: Projected,
) -> Tuple[ReadPairs, np.ndarray]:
    """What reads pairs through the joint layers; pieces of each segment with a question."""
    rows = JointRows(sentences, asked)
    with mode():
        both = zip(questions, split.project(states))
        pieces = Projected(*(torch.cat([question, own]) for question, own in both))

    def read(pairs: np.ndarray) -> Tuple[Tensor, Tensor]:
        index, mask, wanted = (on_device(a, states.device) for a in rows.of(pairs))
        ends, words, has_piece = (
            on_device(a, states.device) for a in rows.words(pairs, wanted.shape[1])
        )
        with mode():
            flat = split.join(pieces, index, mask, wanted).float().flatten(0, 1)
            vectors = torch.cat([F.embedding(end, flat) for end in ends], dim=-1)
            return vectors.masked_fill(~has_piece.unsqueeze(-1), 0.0), words

    n_pieces = np.add.reduceat(sentences.pool.lengths, sentences.first_window)
    return read, n_pieces + sentences.n_windows * asked.lengths.max()


class JointRows:
    """Rows for the joint layers: each holds a question and a window of a sentence. Results are
    wanted of the pieces that words begin or end with.

    The question `[CLS] who [SEP]` and the sentence `[CLS] in ter leukin two [SEP]` of two words
    have the places 0 to 2 and 3 to 8 in the pool of both. Their row is 0 to 8; results are wanted
    of its places 4 (in), 6 (leukin) and 7 (two). Of these three the words begin with the results 0
    and 2 and end with 1 and 2.
    """

    def __init__(self, sentences: Sentences, asked: Pool) -> None:
        self.sentences, self.asked = sentences, asked
        begins, lengths = sentences.pool
        # In the pool of questions and sentences.
        self.places = PairPlaces(*asked, asked.lengths.sum() + begins, lengths)
        # A window without any such piece has its [CLS], so that no row is empty.
        ends = sentences.ends[:, sentences.has_piece]
        self.wanted = np.unique(np.concatenate([*ends, begins[lengths == 2]]))
        window = np.searchsorted(begins, self.wanted, side="right") - 1
        self.place_in_window = self.wanted - begins[window]
        self.n_wanted = np.bincount(window, minlength=len(begins))
        self.first_wanted = begins_of(self.n_wanted)
        # Of the first and last piece of each word: the window, and which of those wanted there.
        which = np.searchsorted(self.wanted, sentences.ends * sentences.has_piece)
        self.window_of_end = window[which]
        self.rank_of_end = which - self.first_wanted[self.window_of_end]

    def of(self, pairs: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`(rows, pieces)` places in the pool of questions and sentences and their mask, and
        `(rows, n)` the places in a row that results are wanted of."""
        segment, question = pairs.T
        counts = self.sentences.n_windows[segment]
        windows, mask = spread(self.sentences.first_window[segment], counts)
        window, question = windows[mask], np.repeat(question, counts)
        index, mask, *_ = self.places.rows(np.stack([window, question], axis=1))
        which, is_wanted = spread(self.first_wanted[window], self.n_wanted[window])
        begins = self.asked.lengths[question][:, None]
        return index, mask, (self.place_in_window[which] + begins) * is_wanted

    def words(self, pairs: np.ndarray, width: int) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the first and last piece of each word stand among the results, `(2, pairs, words)`
        int; `(pairs, words)` bool which of them are words, and which have pieces.

        width: results of a row, padding included.
        """
        segment = pairs[:, 0]
        word, is_word = spread(self.sentences.first_word[segment], self.sentences.n_words[segment])
        has_piece = self.sentences.has_piece[word] & is_word
        counts = self.sentences.n_windows[segment]
        first_row = begins_of(counts) - self.sentences.first_window[segment]
        row = first_row[:, None] + self.window_of_end[:, word]
        return (row * width + self.rank_of_end[:, word]) * has_piece, is_word, has_piece


def read_late(
    layer: LateInteraction,
    mode: Mode,
    sentences: Sentences,
    asked: Pool,
    states: Tensor,
    questions: Tensor,
) -> Tuple[ReadPairs, np.ndarray]:
    """What reads pairs by late interaction; words of each segment."""
    device = states.device
    with mode():
        first, last = (states.index_select(0, on_device(e, device)) for e in sentences.ends)
        words = layer.read_words(torch.cat([first, last], dim=-1))
    pieceless = not sentences.has_piece.all()

    def read(pairs: np.ndarray) -> Tuple[Tensor, Tensor]:
        segment, question = pairs.T
        word, is_word = spread(sentences.first_word[segment], sentences.n_words[segment])
        index, word_mask, asked_index, asked_mask, has_piece = (
            on_device(array, device)
            for array in (
                word,
                is_word,
                *spread(asked.begins[question], asked.lengths[question]),
                sentences.has_piece[word],
            )
        )
        with mode():
            of_words, of_questions = F.embedding(index, words), F.embedding(asked_index, questions)
            vectors = layer(of_words, of_questions, asked_mask).float()
        if pieceless:
            vectors = vectors.masked_fill(~has_piece.unsqueeze(-1), 0.0)
        return vectors, word_mask

    return read, sentences.n_words
