"""Sentences with other entities in their place, for corpora of few sentences."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    DefaultDict,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Sequence,
    Tuple,
    Union,
)

from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example
from spacy.vocab import Vocab

from spacy_nested_ner.corpora.docbin import read_docs
from spacy_nested_ner.corpora.spans import WordSpan

if TYPE_CHECKING:
    from spacy.language import Language

SWAP_ENTITIES = "spacy_nested_ner.swap_entities.v1"


class Entity(NamedTuple):
    """An outermost entity with all that lies within it.

    words, spaces: of each token, whether a space follows it. spans: first word 0; the entity
    itself is among them.
    """

    words: List[str]
    spaces: List[bool]
    spans: List[WordSpan]

    def labels(self) -> List[str]:
        """Of the entity itself; none for entities that cross one another."""
        return [label for start, end, label in self.spans if end - start == len(self.words)]


def swap_entities(
    path: Union[str, Path], variants: int = 10, probability: float = 0.5, spans_key: str = "sc"
) -> Callable[[Language, Example], Iterator[Example]]:
    """`spacy_nested_ner.swap_entities.v1`, for `[corpora.train.augmenter]`: after each example
    copies of it in which outermost entities are replaced by others of the same label, together with
    what is nested in them.

    Mention replacement (Dai and Adel 2020, "An Analysis of Simple Data Augmentation for Named
    Entity Recognition", section 3.1), for entities that nest. Entities that cross one another stay
    as they are. A copy has words, sentence boundaries and the spans under `spans_key`, no other
    annotation; one that came out like its sentence is left out.

    path: the training data, where the other entities come from. variants: copies at most of each
    example. probability: with which an entity is replaced.

    Raises ValueError for a setting out of range, and, once examples come, if there is no such file.
    """
    if variants < 1:
        raise ValueError(f"{SWAP_ENTITIES}: variants must be positive, not {variants}.")
    if not 0 < probability <= 1:
        raise ValueError(
            f"{SWAP_ENTITIES}: probability must be above 0 and at most 1, not {probability}."
        )
    others: DefaultDict[str, List[Entity]] = defaultdict(list)

    def augment(nlp: Language, example: Example) -> Iterator[Example]:
        if not others:
            others.update(entities_by_label(Path(path), spans_key))
        yield example
        for _ in range(variants):
            doc = swapped(example.reference, others, probability, spans_key)
            if doc.text != example.reference.text:
                yield Example(nlp.make_doc(doc.text), doc)

    return augment


def use_swap_entities(config: Dict[str, Any], spans_key: str, **settings: Any) -> None:
    """Let the training data of a config have copies with other entities.

    config: with `paths.train`, which is changed. settings: of `swap_entities`.
    """
    own = {"path": "${paths.train}", "spans_key": spans_key, **settings}
    config["corpora"]["train"]["augmenter"] = {"@augmenters": SWAP_ENTITIES, **own}


def entities_by_label(path: Path, spans_key: str) -> DefaultDict[str, List[Entity]]:
    """The outermost entities of a corpus, once for each occurrence and label.

    Raises ValueError if it cannot be read or has no entity.
    """
    found = defaultdict(list)
    for doc in read_docs(path, Vocab()):
        for start, end in outermost(doc, spans_key):
            entity = entity_at(doc, start, end, spans_key)
            for label in entity.labels():
                found[label].append(entity)
    if not found:
        raise ValueError(
            f"{SWAP_ENTITIES}: {path} has no entity under spans_key '{spans_key}'. Set 'path' to "
            "the training data and 'spans_key' to the key of their spans."
        )
    return found


def outermost(doc: Doc, spans_key: str) -> List[Tuple[int, int]]:
    """First word and end of the stretches that entities cover, in order; entities that cross one
    another make one."""
    stretches: List[Tuple[int, int]] = []
    for start, end in sorted((span.start, span.end) for span in doc.spans.get(spans_key, [])):
        if stretches and start < stretches[-1][1]:
            stretches[-1] = stretches[-1][0], max(end, stretches[-1][1])
        else:
            stretches.append((start, end))
    return stretches


def entity_at(doc: Doc, start: int, end: int, spans_key: str) -> Entity:
    """What a stretch of words holds."""
    words = [token.text for token in doc[start:end]]
    spaces = [bool(token.whitespace_) for token in doc[start:end]]
    spans = [
        (span.start - start, span.end - start, span.label_)
        for span in doc.spans.get(spans_key, [])
        if start <= span.start and span.end <= end
    ]
    return Entity(words, spaces, spans)


def swapped(
    doc: Doc, others: Mapping[str, Sequence[Entity]], probability: float, spans_key: str
) -> Doc:
    """A copy in which each outermost entity is replaced with that probability.

    others: by label.
    """
    words: List[str] = []
    spaces: List[bool] = []
    starts: List[Union[bool, int, None]] = []
    spans: List[WordSpan] = []
    end = 0
    for start, stop in [*outermost(doc, spans_key), (len(doc), len(doc))]:
        for token in doc[end:start]:
            words.append(token.text)
            spaces.append(bool(token.whitespace_))
            starts.append(token.is_sent_start)
        if start == stop:
            break
        end = stop
        old = new = entity_at(doc, start, stop, spans_key)
        choices = [others[label] for label in old.labels() if others.get(label)]
        if choices and random.random() < probability:
            new = random.choice(random.choice(choices))
        spans += [(len(words) + a, len(words) + b, label) for a, b, label in new.spans]
        words += new.words
        spaces += [*new.spaces[:-1], old.spaces[-1]]
        first = doc[start].is_sent_start
        inner = None if first is None else False
        if new is old:
            starts += [token.is_sent_start for token in doc[start:stop]]
        else:
            starts += [first] + [inner] * (len(new.words) - 1)
    copy = Doc(doc.vocab, words=words, spaces=spaces, sent_starts=starts)
    marked = [Span(copy, a, b, label=label) for a, b, label in spans]
    copy.spans[spans_key] = SpanGroup(copy, name=spans_key, spans=marked)
    return copy
