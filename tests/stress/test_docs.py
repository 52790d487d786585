"""Docs of every kind through every system: found alone, in batches, in other orders and processes,
by saved pipelines, and kept by saved docs."""

import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

import numpy as np
import pytest
import spacy
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span, SpanGroup

from tests.conftest import SENTENCES
from tests.stress.pipelines import SYSTEMS, WORDS, small_pipeline

BATCH = 20  # docs that are compared at a time
SPLIT_IN_PROCESSES = 20  # of so many batches one is read by two processes, too
TOLERANCE = 1e-5

# Every character but surrogates, which no text can hold, from every plane.
CHARACTERS = st.characters(exclude_categories=["Cs"])
SPACES = ["\n", "\t", "\n\n", "   ", "\u00a0", "\u2003", "\u200b"]


@dataclass(frozen=True)
class Plan:
    """What a doc is made of. words: to draw from. number: of the random choices."""

    words: Tuple[str, ...]
    length: int
    boundaries: str
    annotated: bool
    number: int

    def make(self, nlp: Language) -> Doc:
        """The doc; the same each time."""
        draw = random.Random(self.number)
        words = [draw.choice(self.words) for _ in range(self.length)]
        if self.boundaries == "sentences":
            words = draw.choice(SENTENCES)[0].split(" ") + words
        starts = {
            "none": None,
            "sentences": None,
            "random": [draw.random() < 0.1 for _ in words],
            "all": [True for _ in words],
        }[self.boundaries]
        spaces = [draw.random() < 0.8 for _ in words]
        doc = Doc(nlp.vocab, words=words, spaces=spaces, sent_starts=starts)
        if self.annotated and len(doc):
            annotate(doc, draw)
        return doc


def annotate(doc: Doc, draw: random.Random) -> None:
    """Spans under the component's key and another one, and entities."""
    for key in ("sc", "other"):
        spans = []
        for _ in range(draw.randint(0, 4)):
            start = draw.randrange(len(doc))
            spans.append(Span(doc, start, draw.randint(start + 1, len(doc)), label="OLD"))
        doc.spans[key] = SpanGroup(doc, name=key, spans=spans, attrs={"note": draw.random()})
    place = draw.randrange(len(doc))
    doc.set_ents([Span(doc, place, place + 1, label="ENT")])


def words() -> st.SearchStrategy[str]:
    """Those that were learned, more often than any others."""
    return st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from(WORDS),
        st.text(CHARACTERS, min_size=1, max_size=6),
        st.sampled_from(SPACES),
        st.builds(lambda c, n: c * n, CHARACTERS, st.sampled_from([50, 300, 3000])),
    )


def length_of(number: int) -> int:
    """Mostly short docs; one in a hundred has hundreds of words, one in 500 has 5,000."""
    draw = random.Random(number)
    longest = draw.choices([0, 25, 100, 900], [3, 86, 10, 1])[0]
    return 5000 if draw.random() < 0.002 else draw.randint(min(1, longest), longest)


PLANS = st.builds(
    Plan,
    words=st.lists(words(), min_size=1, max_size=12).map(tuple),
    length=st.integers(0, 2**32).map(length_of),
    boundaries=st.sampled_from(["none", "sentences", "random", "all"]),
    annotated=st.booleans(),
    number=st.integers(0, 2**32),
)
Found = List[Dict[Tuple[int, int, str], float]]


def found_in(docs: Iterable[Doc]) -> Found:
    """Score of each span of each doc."""
    found = []
    for doc in docs:
        group = doc.spans["sc"]
        scores = group.attrs["scores"]
        assert scores.shape == (len(group),) and scores.dtype == np.float32
        spans = [(span.start, span.end, span.label_) for span in group]
        assert len(set(spans)) == len(spans), "a span was found twice"
        found.append(dict(zip(spans, scores.tolist())))
    return found


class Tally(NamedTuple):
    """What was tried and what was seen."""

    counts: Counter
    largest: Dict[str, float]
    seconds: Dict[int, Tuple[float, int]]


def compare(way: str, found: Found, expected: Found, threshold: float, tally: Tally) -> None:
    """The same spans with the same scores. A span may be missing on one side only if its score on
    the other is the threshold itself, within the tolerance."""
    assert len(found) == len(expected), way
    tally.counts[f"docs {way}"] += len(found)
    for place, (got, wanted) in enumerate(zip(found, expected)):
        for span in got.keys() | wanted.keys():
            a, b = got.get(span, threshold), wanted.get(span, threshold)
            assert abs(a - b) <= TOLERANCE, f"{way}: doc {place}: {span}: {a}, expected {b}"
            tally.counts["at the threshold"] += (span in got) != (span in wanted)
            tally.largest[way] = max(tally.largest.get(way, 0.0), abs(a - b))


def check(doc: Doc, before: Doc, nlp: Language) -> int:
    """What must hold for every doc. RETURNS: how many spans were found."""
    labels = set(nlp.get_pipe("ner").labels)
    group = doc.spans["sc"]
    for span, score in zip(group, group.attrs["scores"].tolist()):
        assert 0 <= span.start < span.end <= len(doc) and 0 <= score <= 1
        assert span.label_ in labels and not span[0].is_space and not span[-1].is_space
    assert set(doc.spans) == {*before.spans, "sc"}
    for key in set(before.spans) - {"sc"}:
        assert kept(doc.spans[key]) == kept(before.spans[key])
    assert [places(ent) for ent in doc.ents] == [places(ent) for ent in before.ents]
    assert doc.to_array(["ORTH", "SENT_START"]).tolist() == (
        before.to_array(["ORTH", "SENT_START"]).tolist()
    )
    return len(group)


def kept(group: SpanGroup) -> Tuple[List[tuple], Dict[str, Any]]:
    return [places(span) for span in group], dict(group.attrs)


def places(span: Span) -> Tuple[int, int, str]:
    return span.start, span.end, span.label_


class Pipelines:
    """A pipeline, and what loads from its bytes and from its folder."""

    def __init__(self, system: str, folder: Any) -> None:
        self.nlp = small_pipeline(system)
        self.nlp.to_disk(folder)
        fresh = spacy.blank("en", config=self.nlp.config)
        self.loaded = [
            ("after to_disk", spacy.load(folder)),
            ("after to_bytes", fresh.from_bytes(self.nlp.to_bytes())),
        ]
        self.threshold = float(self.nlp.get_pipe("ner").cfg["threshold"])


def read_in_all_ways(
    plans: Sequence[Plan], number: int, pipelines: Pipelines, tally: Tally
) -> None:
    """Compare what is found in the docs of one batch."""
    nlp, draw = pipelines.nlp, random.Random(number)
    docs = [plan.make(nlp) for plan in plans]
    for doc in docs:
        begin = time.perf_counter()
        nlp(doc)
        note_time(tally, len(doc), time.perf_counter() - begin)
    tally.counts["spans"] += sum(check(doc, p.make(nlp), nlp) for p, doc in zip(plans, docs))
    alone = found_in(docs)

    def compared(way: str, found: Found) -> None:
        compare(way, found, alone, pipelines.threshold, tally)

    size = draw.choice([2, 3, 64])
    compared("batched", found_in(nlp.pipe((p.make(nlp) for p in plans), batch_size=size)))
    order = draw.sample(range(len(plans)), len(plans))
    shuffled = found_in(nlp.pipe([plans[i].make(nlp) for i in order], batch_size=7))
    compared("shuffled", [shuffled[order.index(i)] for i in range(len(plans))])
    way, loaded = pipelines.loaded[number % 2]
    compared(way, found_in(loaded.pipe([p.make(loaded) for p in plans])))
    if number % SPLIT_IN_PROCESSES == 0:
        made = [p.make(nlp) for p in plans]
        compared("in two processes", found_in(nlp.pipe(made, n_process=2, batch_size=3)))
    data = DocBin(docs=docs, store_user_data=True).to_bytes()
    assert found_in(DocBin().from_bytes(data).get_docs(nlp.vocab)) == alone, "DocBin"
    assert found_in(Doc(nlp.vocab).from_bytes(doc.to_bytes()) for doc in docs) == alone, "to_bytes"
    for doc, plan in zip(docs, plans):
        tally.counts["docs"] += 1
        tally.counts["words"] += len(doc)
        tally.counts["empty docs"] += not len(doc)
        tally.counts["docs of spaces"] += doc.text.isspace()
        tally.counts["docs of over 500 words"] += len(doc) > 500
        tally.counts["docs with other annotation"] += plan.annotated


def note_time(tally: Tally, length: int, seconds: float) -> None:
    """Keep the times of docs of about the same length: of so many bits."""
    bits = length.bit_length()
    before, words = tally.seconds.get(bits, (0.0, 0))
    tally.seconds[bits] = before + seconds, words + length
    tally.largest["seconds"] = max(tally.largest.get("seconds", 0.0), seconds)


@pytest.mark.share(4)
@pytest.mark.parametrize("system", SYSTEMS)
def test_docs(trial, tmp_path, system: str) -> None:
    pipelines = Pipelines(system, tmp_path / "model")
    tally = Tally(Counter(), {}, {})
    numbers = trial.inputs(10_000 // BATCH)
    failed: List[str] = []

    @seed(trial.seed)
    @settings(
        max_examples=10_000 // BATCH,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(PLANS, min_size=BATCH, max_size=BATCH))
    def run(plans: List[Plan]) -> None:
        number = next(numbers, None)
        if number is None:
            return
        try:
            read_in_all_ways(plans, number, pipelines, tally)
        except Exception as err:
            failed.append(
                f"seed {trial.seed}, batch {number}: {type(err).__name__}: {err}\n{plans}"
            )
            raise

    try:
        run()
    except BaseException:
        pytest.fail(failed[0] if failed else "hypothesis failed")
    if tally.counts["docs"] >= 500:  # a few docs may hold nothing that was learned
        assert tally.counts["spans"] > tally.counts["docs"] / 10
    per_word = {
        2**bits: 1000 * seconds / count
        for bits, (seconds, count) in sorted(tally.seconds.items())
        if count
    }
    # A word of a long doc takes no longer than one of a doc of 32 to 63 words.
    assert per_word[max(per_word)] < 2 * per_word.get(64, np.inf)
    slowest = tally.largest.pop("seconds")
    trial.record(
        **{key.replace(" ", "_"): value for key, value in sorted(tally.counts.items())},
        crashes=0,
        largest_difference_of_scores=tally.largest,
        milliseconds_per_word={
            f"docs of under {most} words": round(time, 3) for most, time in per_word.items()
        },
        seconds_of_slowest_doc=round(slowest, 2),
    )
