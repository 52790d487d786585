"""What systems draw their figures from, made of a trained component and docs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from spacy_nested_ner.encoders.batching import cut_batches
from spacy_nested_ner.evaluation.scores.evaluate import run_pipeline
from spacy_nested_ner.evaluation.scores.metrics import strict
from spacy_nested_ner.evaluation.scores.own_thresholds import changed
from spacy_nested_ner.model.head_model import encode, head_shim
from spacy_nested_ner.model.types import HeadInput, system_of
from spacy_nested_ner.pipeline.component import NestedNER
from spacy_nested_ner.systems.base import FigureInput, System
from spacy_nested_ner.systems.head import Batch


def nested_pipes(nlp: Language) -> Dict[str, Tuple[NestedNER, System]]:
    """The components of a pipeline that this package brings, by name, with their systems."""
    pipes = ((name, pipe) for name, pipe in nlp.pipeline if isinstance(pipe, NestedNER))
    return {name: (pipe, system_of(pipe.model)) for name, pipe in pipes}


@dataclass
class ComponentView(FigureInput):
    """A component of a pipeline on some docs, see `FigureInput`.

    examples: with docs to predict on, which are left as they are. number: of the doc whose first
    segment is followed. values: of options to vary, those of the system where there are none.
    """

    nlp: Language
    pipe: NestedNER
    examples: Sequence[Example]
    number: int = 0
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def head(self) -> Any:
        return head_shim(self.pipe.model).module.eval()

    @property
    def labels(self) -> Tuple[str, ...]:
        return self.pipe.labels

    @property
    def options(self) -> Any:
        return self.pipe.options()

    @property
    def varied(self) -> Mapping[str, Sequence[Any]]:
        own = system_of(self.pipe.model).varied
        return {name: self.values.get(name, values) for name, values in own.items()}

    @cached_property
    def docs(self) -> List[Doc]:
        """As the pipeline predicts them."""
        return list(self.nlp.pipe(eg.predicted.copy() for eg in self.examples))

    def batches(self) -> Iterator[Tuple[Batch, Optional[np.ndarray]]]:
        return self._read(self.docs, self.pipe.segments(self.docs).rows)

    @property
    def followed_words(self) -> List[str]:
        read = self.pipe.as_read([self.docs[self.number]], self._first_segment())
        doc, start, end = read.rows[0].tolist()
        return [token.text for token in read.docs[doc][start:end]]

    def followed(self) -> Iterator[Tuple[Batch, Optional[np.ndarray]]]:
        return self._read([self.docs[self.number]], self._first_segment())

    def _first_segment(self) -> np.ndarray:
        """`(1, 3)` int, see `Segments`."""
        return self.pipe.segments([self.docs[self.number]]).rows[:1]

    def _read(
        self, docs: List[Doc], segments: np.ndarray
    ) -> Iterator[Tuple[Batch, Optional[np.ndarray]]]:
        if not len(segments):
            return
        model = self.pipe.model
        read = self.pipe.as_read(docs, segments)
        given = HeadInput(read.docs, read.rows, options=self.options)
        rows, _ = encode(model, given, is_train=False)
        for batch in cut_batches(rows.lengths, model.attrs["batch_words"]):
            label = None if rows.label is None else rows.label[batch]
            yield Batch(*rows.read(batch)), label

    def score(self, **options: Any) -> Tuple[float, float]:
        unseen = [Example(eg.predicted.copy(), eg.reference) for eg in self.examples]
        self.pipe.options(**options)  # says which one the component does not have
        with changed(self.pipe, **options):
            run = run_pipeline(self.nlp, unseen, self.pipe.key)
        return strict(run.table).f or 0.0, run.words / run.seconds
