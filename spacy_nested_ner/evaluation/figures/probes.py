"""What trained heads do inside, as plain numbers: the papers' figures without the drawing."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from torch import Tensor

from spacy_nested_ner.encoders.batching import cut_batches
from spacy_nested_ner.evaluation.scores.metrics import strict
from spacy_nested_ner.evaluation.scores.report import run_pipeline
from spacy_nested_ner.model.head_model import encode, head_shim
from spacy_nested_ner.model.types import HeadInput, HeadModel
from spacy_nested_ner.pipeline.component import NestedNER
from spacy_nested_ner.systems.diffusion.head import Denoised, Diffusion
from spacy_nested_ner.systems.locate_and_label.head import LocateAndLabel
from spacy_nested_ner.systems.mrc.head import MRC
from spacy_nested_ner.systems.piqn.head import PIQN
from spacy_nested_ner.systems.proposer_regressor.head import ProposerRegressor

PLACES = ("before", "first word", "inside", "last word", "only word", "after")
"""Where the word of a query lies, seen from the entity that the query finds."""
SYSTEMS = {
    PIQN: "piqn",
    LocateAndLabel: "locate_and_label",
    ProposerRegressor: "proposer_regressor",
    Diffusion: "diffusion",
    MRC: "mrc",
}
OFFSETS = ("0", "1", "2", "3", "4+")


class Batch(NamedTuple):
    """Padded words of some segments, as a head reads them, see `Head.predict`.

    segment: `(batch,)` int, rows of the pipe's segments.
    """

    segment: np.ndarray
    words: Tensor
    mask: Tensor
    queries: Optional[Tensor]


def nested_pipes(nlp: Language) -> Dict[str, NestedNER]:
    """The components of a pipeline that are one of the five systems, by name."""
    return {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, NestedNER)}


def system_of(pipe: NestedNER) -> Optional[str]:
    """Which of the systems with a probe a pipe is, by the name of the module of its head."""
    return SYSTEMS.get(type(head_of(pipe)))


def head_of(pipe: NestedNER) -> Any:
    """The torch head of a trained pipe, in evaluation mode."""
    return head_shim(pipe.model).module.eval()


def _read(pipe: NestedNER, docs: Sequence[Doc]) -> Iterator[Batch]:
    """docs: that the components before the pipe have annotated."""
    segments = pipe.segments(docs).rows
    if not len(segments):
        return
    rows, _ = encode(pipe.model, HeadInput(list(docs), segments, options=pipe.options()), False)
    for batch in cut_batches(rows.lengths, pipe.model.attrs["batch_words"]):
        yield Batch(rows.segment[batch], *rows.read(batch))


def trajectories(model: HeadModel, X: HeadInput) -> List[List[Denoised]]:
    """How noise becomes entities: for each segment, its spans before and after every step.

    X: as for a prediction. The last step of a segment holds the spans that `predict` chooses from.
    Segments go through the head one by one; words are counted from the segment's first.
    """
    rows, _ = encode(model, X, is_train=False)
    head = head_shim(model).module.eval()
    alone = (rows.read(np.array([i])) for i in range(len(X.segments)))
    return [head.trajectory(words, mask, X.options) for words, mask, _ in alone]


# PIQN


@dataclass(frozen=True)
class QueryUse:
    """Which query predicted what; all arrays have one entry per prediction.

    query: number of the query; where queries are made from words, where its word lies, an index
    into `PLACES`. location: centre of the predicted entity, from 0 (start of the sentence) to 1;
    where queries are made from words, in words from the query's own word. label: index. from_words:
    which of the two it is.
    """

    query: np.ndarray
    location: np.ndarray
    label: np.ndarray
    from_words: bool

    def type_matrix(self, n_labels: int) -> Tuple[np.ndarray, np.ndarray]:
        """The queries that predict anything (all `PLACES` where they are made from words), and
        `(queries, labels)` float: the share of a label's predictions that each of them makes (PIQN
        figure 4: normalised on the axis of types)."""
        queries = np.arange(len(PLACES)) if self.from_words else np.unique(self.query)
        row = np.searchsorted(queries, self.query)
        counts = np.zeros((len(queries), n_labels))
        np.add.at(counts, (row, self.label), 1)
        return queries, counts / np.maximum(counts.sum(axis=0), 1)


@torch.no_grad()
def query_use(pipe: NestedNER, docs: Sequence[Doc]) -> QueryUse:
    """What each instance query of a `piqn_ner` predicts (PIQN section 5.3)."""
    head: PIQN = head_of(pipe)
    parts: List[Tuple[np.ndarray, ...]] = []
    from_words = False
    for batch in _read(pipe, docs):
        words, asking, asked = head.encode(batch.words, batch.mask, batch.queries)
        answers = head.answer(words[-1], asking[-1], batch.mask, asked)
        left, start = head.probability(answers.left).max(dim=-1)
        right, end = head.probability(answers.right).max(dim=-1)
        label_p, label = answers.labels.softmax(-1).max(dim=-1)
        keep = (label > 0) & (start <= end) & (label_p * left * right >= pipe.cfg["threshold"])
        keep &= label_p >= pipe.cfg["label_threshold"]
        keep &= torch.minimum(left, right) >= pipe.cfg["boundary_threshold"]
        if asked.mask is not None:
            keep &= asked.mask
        row, query = torch.nonzero(keep, as_tuple=True)
        centre = (start[row, query] + end[row, query]) / 2
        lengths = batch.mask.sum(dim=1)
        from_words = asked.anchors is not None
        if asked.anchors is not None:
            own = asked.anchors[row, query]
            location = centre - own
            number = _place(own, start[row, query], end[row, query])
        else:
            location = (centre + 0.5) / lengths[row]
            number = query
        parts.append(tuple(t.cpu().numpy() for t in (number, location, label[row, query] - 1)))
    none = np.zeros(0, dtype=np.int64)
    queries, locations, labels = map(np.concatenate, zip(*parts or [(none, none, none)]))
    return QueryUse(queries, locations, labels, from_words)


def _place(word: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Index into `PLACES`. All `(n,)` long: words, first and last words of spans."""
    place = torch.full_like(word, PLACES.index("inside"))
    place[word == start] = PLACES.index("first word")
    place[word == end] = PLACES.index("last word")
    place[(word == start) & (word == end)] = PLACES.index("only word")
    place[word < start] = PLACES.index("before")
    place[word > end] = PLACES.index("after")
    return place


# Locate and Label


@torch.no_grad()
def offset_counts(pipe: NestedNER, docs: Sequence[Doc]) -> Dict[str, int]:
    """How many words the boundaries of seed spans are moved (Locate and Label, figure 3).

    Counts both boundaries of each seed that passes the filter and ends on a predicted entity.
    """
    head: LocateAndLabel = head_of(pipe)
    counts = np.zeros(len(OFFSETS), dtype=np.int64)
    for batch in _read(pipe, docs):
        words = head.encode(batch.words, batch.mask)
        seeds, pooled = head.proposals(words, pipe.cfg["filter_threshold"])
        _, moved, legal = head.adjust(words, seeds, pooled)
        found = head(batch.words, batch.mask, options=pipe.options())
        size = batch.mask.shape[1]
        ends = _places(moved.row, moved.start, moved.end, size)
        taken = legal & torch.isin(ends, _places(found.segment, found.start, found.end, size))
        moves = torch.stack([moved.start - seeds.start, moved.end - seeds.end])[:, taken].abs()
        counts += np.bincount(moves.clamp(max=len(OFFSETS) - 1).flatten().cpu(), minlength=5)
    return dict(zip(OFFSETS, counts.tolist()))


def _places(row: Tensor, start: Tensor, end: Tensor, size: int) -> Tensor:
    return (row * size + start) * size + end


# Paths of spans: denoising and refinement


@dataclass(frozen=True)
class SpanPath:
    """How one span became an entity.

    stages: `(stages, 2)` float, first and last word at each stage, counted from the segment's first
    word. label, score: of the entity.
    """

    stages: np.ndarray
    label: str
    score: float


def followed_words(pipe: NestedNER, doc: Doc) -> List[str]:
    """The words of the segment that `denoising_paths`, `refinement_paths` and `answer_scores` look
    at."""
    _, start, end = _first_segment(pipe, doc)[0].tolist()
    return [token.text for token in doc[start:end]]


def _first_segment(pipe: NestedNER, doc: Doc) -> np.ndarray:
    """`(1, 3)` int, see `Segments`."""
    return pipe.segments([doc]).rows[:1]


def denoising_paths(pipe: NestedNER, doc: Doc) -> List[SpanPath]:
    """The noisy spans of the first segment of a doc that become entities, from noise to the last
    step (DiffusionNER, figure 1 and algorithm 2). Of those that meet and say the label, the one
    whose score is nearest to the entity's, which with `score = "sum"` is the one that it is taken
    from; its path stays where it was in the step of that score.
    """
    segment = _first_segment(pipe, doc)
    (steps,) = trajectories(pipe.model, HeadInput([doc], segment, options=pipe.options()))
    stages = torch.stack([steps[0].noisy[0], *(step.spans[0] for step in steps)]).float()
    first = len(steps) - 1 if pipe.cfg["found_in"] == "last_step" else 0
    counted = steps[first:]
    spans = torch.stack([step.spans[0] for step in counted])
    seen = torch.stack([(step.legal & step.real)[0] for step in counted])
    says = torch.stack([step.label[0] for step in counted])
    sure = torch.stack([step.score[0] for step in counted])
    paths = []
    for _, start, end, label, score in zip(*head_of(pipe).entities(counted, pipe.options())):
        shows = (spans == torch.stack([start, end])).all(-1) & seen
        # The winner of a mean may be nobody's own: then any span there will do.
        own = shows & (says == label)
        apart = (sure - score).abs() + (~own).float() + 2.0 * (~shows).float()
        number, span = divmod(int(apart.argmin()), spans.shape[1])
        until = first + number + 1
        way = stages[:, span].clone()
        way[until:] = way[until]
        paths.append(SpanPath(way.cpu().numpy(), pipe.labels[int(label)], float(score)))
    return sorted(paths, key=lambda path: (*path.stages[-1], path.label))


def refinement_paths(pipe: NestedNER, doc: Doc) -> List[SpanPath]:
    """The proposals of the first segment of a doc that become entities, after the proposer and
    after each layer of the regressor, and what was decoded (Wen et al. 2023, table 8)."""
    segment = _first_segment(pipe, doc)
    rows, _ = encode(pipe.model, HeadInput([doc], segment, options=pipe.options()), False)
    words, mask, _ = rows.read(np.array([0]))
    trace = head_of(pipe).trace(words, mask)
    final = trace.final
    keep = (final.score >= pipe.cfg["threshold"]) & trace.mask
    decoded = torch.stack([final.start, final.end], dim=-1)[0].to(trace.location.dtype)
    stages = torch.cat([trace.location[:, 0], decoded.unsqueeze(0)])
    return _paths(pipe, stages, keep[0], final.label[0], final.score[0])


def _paths(
    pipe: NestedNER, stages: Tensor, keep: Tensor, label: Tensor, score: Tensor
) -> List[SpanPath]:
    """stages: `(stages, spans, 2)`. The others: `(spans,)`."""
    best: Dict[Tuple[float, float, int], SpanPath] = {}
    for i in torch.nonzero(keep).flatten().tolist():
        path = stages[:, i].cpu().numpy()
        key = (float(path[-1, 0]), float(path[-1, 1]), int(label[i]))
        if key not in best or float(score[i]) > best[key].score:
            best[key] = SpanPath(path, pipe.labels[key[2]], float(score[i]))
    return [best[key] for key in sorted(best)]


# DiffusionNER


def step_trade_off(
    nlp: Language,
    pipe: NestedNER,
    examples: Sequence[Example],
    steps: Iterable[int],
    spans: Iterable[int],
) -> List[Dict[str, float]]:
    """F1 and speed of a `diffusion_ner` for each number of steps and of noisy spans (DiffusionNER,
    figures 3 and 4). The pipe's own settings are put back.

    RETURNS: rows of "steps", "spans", "f" and "words_per_second".
    """
    rows = []
    for n_spans in spans:
        for n_steps in steps:
            with _settings(pipe, steps=n_steps, n_spans=n_spans):
                run = run_pipeline(nlp, [_fresh(nlp, eg) for eg in examples], pipe.key)
            speed = run.words / run.seconds
            row = {"steps": n_steps, "spans": n_spans, "f": strict(run.table).f or 0.0}
            rows.append({**row, "words_per_second": speed})
    return rows


def _fresh(nlp: Language, example: Example) -> Example:
    """The example with a predicted doc that no component has seen."""
    predicted = example.predicted
    words, spaces = [t.text for t in predicted], [bool(t.whitespace_) for t in predicted]
    return Example(Doc(nlp.vocab, words=words, spaces=spaces), example.reference)


@contextmanager
def _settings(pipe: NestedNER, **settings: Any) -> Iterator[None]:
    before = {name: pipe.cfg[name] for name in settings}
    pipe.cfg.update(settings)
    try:
        yield
    finally:
        pipe.cfg.update(before)


# BERT-MRC


@dataclass(frozen=True)
class AnswerScores:
    """How a sentence answers the question of each label; all `(labels, words)` float, 0 to 1.

    start, end: that an answer starts or ends at the word. answer: the score of the best answer that
    holds the word, the smallest probability of its start, its end and their match; None for a head
    that matches no starts with ends.
    """

    start: np.ndarray
    end: np.ndarray
    answer: Optional[np.ndarray]


@torch.no_grad()
def answer_scores(pipe: NestedNER, doc: Doc) -> AnswerScores:
    """What a `mrc_ner` makes of the first segment of a doc (BERT-MRC, section 3.3)."""
    segment = _first_segment(pipe, doc)
    rows, _ = encode(pipe.model, HeadInput([doc], segment, options=pipe.options()), False)
    assert rows.label is not None
    head: MRC = head_of(pipe)
    shape = (len(pipe.labels), int(segment[0, 2] - segment[0, 1]))
    start, end, answer = (np.zeros(shape) for _ in range(3))
    for batch in cut_batches(rows.lengths, pipe.model.attrs["batch_words"]):
        words, mask, _ = rows.read(batch)
        first, last, start_logits, end_logits = head.boundaries(words)
        starts, ends = start_logits.sigmoid(), end_logits.sigmoid()
        label = rows.label[batch]
        start[label], end[label] = starts.cpu().numpy(), ends.cpu().numpy()
        if head.match is not None:
            pairs = (mask.unsqueeze(2) & mask.unsqueeze(1)).triu()
            row, i, j = torch.nonzero(pairs, as_tuple=True)
            score = torch.minimum(starts[row, i], ends[row, j])
            score = torch.minimum(score, head.match(first, last, row, i, j).sigmoid())
            best = torch.zeros(pairs.shape, dtype=score.dtype, device=score.device)
            best[row, i, j] = score
            # Of all that start here or before, the best that end here or later.
            best = best.flip(2).cummax(dim=2).values.flip(2).cummax(dim=1).values
            answer[label] = best.diagonal(dim1=1, dim2=2).cpu().numpy()
    return AnswerScores(start, end, None if head.match is None else answer)
