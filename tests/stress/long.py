"""Inputs of any length: what grew faster than its input in earlier versions, and the like."""

from __future__ import annotations

import json
import re
from typing import Callable, Dict, Iterator, List, NamedTuple, Tuple

from tests.stress.bases import Files, bases

Places = List[Tuple[int, int]]

FIRST: Places = [(0, 1)]

WORDS = ("protein", "of", "the", "activated", "IL-2", "gene", "cells", "in", "Paris", "said")


class Long(NamedTuple):
    """build: the files of a corpus of size n, and how many entities it holds. n: a size that
    takes some tenths of a second. group: see `ReadOptions`."""

    name: str
    what: str
    build: Callable[[int], Tuple[Files, int]]
    n: int
    group: str = "sentence"


def long_inputs() -> Iterator[Long]:
    """Every format with each kind of length that it can have."""
    yield from _markup()
    yield from _lines()
    yield from _annotations()
    yield from _documents()


def words(n: int) -> str:
    """A text of n words."""
    return " ".join(WORDS[i % len(WORDS)] for i in range(n))


def _markup() -> Iterator[Long]:
    """Texts of many `<` and other marks."""
    builders: Dict[str, Callable[[str], Files]] = {"ace": _ace, "rich-ere": _ere, "brat": _brat}
    for unit in ("<", "<quote>", "< >", "&", "🙂"):
        for name, build in builders.items():
            yield Long(
                name,
                f"a text of many {unit}",
                lambda n, b=build, u=unit: (b("b" + u * n), 1),
                20_000,
            )


def _lines() -> Iterator[Long]:
    """One very long line or sentence."""

    def four(n: int, name: str) -> Tuple[Files, int]:
        return {name: f"{words(n)}\n{'T ' * n}\n0,1 X\n\n".encode()}, 1

    def rows(n: int, row: str, name: str, per_row: int) -> Tuple[Files, int]:
        lines = (row.replace("WORD", WORDS[i % len(WORDS)]) for i in range(n))
        return {name: "".join(lines).encode()}, n * per_row

    yield Long("nne", "one long line", lambda n: four(n, "wsj.mrg"), 40_000)
    yield Long("lu-roth", "one long line", lambda n: four(n, "train.txt"), 40_000)
    yield Long("litbank", "one long line", lambda n: (_brat(f"b {words(n)}"), 1), 40_000)
    yield Long("brat", "one long line", lambda n: (_brat(f"b {words(n)}"), 1), 30_000)
    yield Long("brat", "one long word", lambda n: (_brat(f"b {'x' * n}"), 1), 200_000)
    for name, row, file, per_row in (
        ("conll", "WORD NN B-X\n", "eng.train", 1),
        ("columns", "WORD B-X B-Y\n", "train.txt", 2),
        ("germeval2014", "1\tWORD\tB-X\tB-Y\n", "train.tsv", 2),
        ("weibo", "科0\tB-X\n", "weibo.train", 1),
    ):
        yield Long(
            name,
            "one long sentence",
            lambda n, r=row, f=file, p=per_row: rows(n, r, f, p),
            15_000,
        )
    yield Long(
        "few-nerd",
        "one long sentence",
        lambda n: rows(n // 2, "WORD\tX\nWORD\tO\n", "train.txt", 1),
        30_000,
    )


def _annotations() -> Iterator[Long]:
    """One text with many annotations, nested as deep as they are many."""

    def nested(n: int) -> Places:
        return [(0, i + 1) for i in range(n)]

    def beside(n: int) -> Places:
        return [(i, i + 1) for i in range(n)]

    known = {base.name for base in bases()}  # without the library of xmi, not this one
    yield Long("label-studio", "many regions in units", lambda n: (_units(n, beside(n)), n), 8_000)
    for what, places, builders in (
        ("nested", nested, _ANNOTATED),
        ("side by side", beside, {**_ANNOTATED, **_REPEATING}),
    ):
        for name, build in builders.items():
            if name in known:
                yield Long(
                    name,
                    f"many annotations, {what}",
                    lambda n, b=build, p=places: (b(n, p(n)), n),
                    1_000 if name == "xmi" else 8_000,
                )


def _documents() -> Iterator[Long]:
    """Many documents, and many sentences in one."""
    article = b"<article><articleinfo><bibliomisc>M</bibliomisc></articleinfo><title></title>"

    def genia(n: int) -> Tuple[Files, int]:
        sentence = '<sentence>The <cons sem="G#cell_type">T cell</cons> said so.</sentence>'
        body = f"<abstract>{sentence * n}</abstract></article></set>".encode()
        return {"a.xml": b"<set>" + article + body}, n

    def fours(n: int) -> Tuple[Files, int]:
        return {"wsj.mrg": b"a b c d\nT T T T\n0,1 X|1,1 Y\n\n" * n}, 2 * n

    def books(n: int) -> Tuple[Files, int]:
        return _brat("b said so.\n" * n), 1

    def conll(n: int) -> Tuple[Files, int]:
        return {"train.txt": b"-DOCSTART- O\n\n" + b"a B-X\nb I-X\n\n" * n}, n

    def items(n: int, name: str, item: Dict[str, object], per_item: int) -> Tuple[Files, int]:
        return {name: json.dumps([item] * n).encode()}, n * per_item

    for group in ("sentence", "article"):
        yield Long("genia", "many sentences", genia, 1_000, group)
        yield Long("nne", "many sentences", fours, 1_000, group)
        yield Long("conll", "many sentences", conll, 1_000, group)
        yield Long("litbank", "many sentences in one text", books, 1_000, group)
    entity = {"start": 0, "end": 1, "type": "X"}
    papers = {"tokens": ["a", "b"], "entities": [entity], "org_id": "d"}
    for group in ("sentence", "article"):
        yield Long(
            "papers-json",
            "many items",
            lambda n: items(n, "train.json", papers, 1),
            1_000,
            group,
        )
    gliner = {"tokenized_text": ["a", "b"], "ner": [[0, 0, "X"]]}
    yield Long("gliner", "many items", lambda n: items(n, "train.json", gliner, 1), 1_000)


def _ace(text: str, places: Places = FIRST) -> Files:
    mentions = "".join(
        f'<entity_mention ID="{i}"><extent><charseq START="{a}" END="{b - 1}">{text[a:b]}</charseq>'
        "</extent></entity_mention>"
        for i, (a, b) in enumerate(places)
    )
    apf = f'<source_file><document><entity TYPE="X">{mentions}</entity></document></source_file>'
    return {"a.sgm": text.encode(), "a.apf.xml": apf.encode()}


def _ere(text: str, places: Places = FIRST) -> Files:
    mentions = "".join(
        f'<entity_mention offset="{a}" length="{b - a}"><mention_text>{text[a:b]}</mention_text>'
        "</entity_mention>"
        for a, b in places
    )
    ere = f'<deft_ere><entities><entity type="X">{mentions}</entity></entities></deft_ere>'
    return {"a.txt": text.encode(), "a.rich_ere.xml": ere.encode()}


def _xmi(n: int, places: Places) -> Files:
    """After the sample, with a text and entities of its own."""
    text, found = _characters(n, places)
    sample = next(base.files for base in bases() if base.name == "xmi")
    whole = bytes(sample["doc.xmi"]).decode()
    whole = re.sub(r"<\w+:(Token|Sentence|NamedEntity) [^>]*>", "", whole)
    prefix = re.search(r'xmlns:(\w+)="http:///de/tudarmstadt/ukp/dkpro/core/api/ner', whole)
    assert prefix
    entities = "".join(
        f'<{prefix[1]}:NamedEntity xmi:id="{i}" sofa="1" begin="{a}" end="{b}" value="X"/>'
        for i, (a, b) in enumerate(found, start=2)
    )
    whole = whole.replace("<cas:Sofa", f"{entities}<cas:Sofa")
    whole = re.sub('sofaString="[^"]*"', f'sofaString="{text}"', whole)
    members = " ".join(str(i + 2) for i in range(len(found)))
    whole = re.sub('members="[^"]*"', f'members="{members}"', whole)
    return {**sample, "doc.xmi": whole.encode()}


def _brat(text: str, lines: str = "T1\tX 0 1\tb\n") -> Files:
    return {"a.txt": text.encode(), "a.ann": lines.encode()}


def _characters(n: int, places: Places) -> Tuple[str, Places]:
    """A text of n words of one letter, and its spans in characters."""
    return "b " * n, [(2 * a, 2 * b - 1) for a, b in places]


def _papers(n: int, places: Places) -> Files:
    entities = [{"start": a, "end": b, "type": "X"} for a, b in places]
    return {"train.json": json.dumps([{"tokens": ["b"] * n, "entities": entities}]).encode()}


def _gliner(n: int, places: Places) -> Files:
    item = {"tokenized_text": ["b"] * n, "ner": [[a, b - 1, "X"] for a, b in places]}
    return {"train.json": json.dumps([item]).encode()}


def _mrc(n: int, places: Places) -> Files:
    item = {
        "context": "b " * n,
        "entity_label": "X",
        "span_position": [f"{a};{b - 1}" for a, b in places],
    }
    return {"train.json": json.dumps([item]).encode()}


def _prodigy(n: int, places: Places) -> Files:
    text, found = _characters(n, places)
    spans = [{"start": a, "end": b, "label": "X"} for a, b in found]
    return {"train.jsonl": json.dumps({"text": text, "spans": spans}).encode()}


def _doccano(n: int, places: Places) -> Files:
    text, found = _characters(n, places)
    return {"train.jsonl": json.dumps({"text": text, "label": [[*p, "X"] for p in found]}).encode()}


def _label_studio(n: int, places: Places) -> Files:
    text, found = _characters(n, places)
    results = [{"value": {"start": a, "end": b, "labels": ["X"]}} for a, b in found]
    task = {"data": {"text": text}, "annotations": [{"result": results}]}
    return {"train.json": json.dumps([task]).encode()}


def _units(n: int, places: Places) -> Files:
    """In units of UTF-16, in which an emoji are two."""
    text, found = _characters(n, places)
    results = [
        {"value": {"start": a + 3, "end": b + 3, "labels": ["X"], "text": text[a:b]}}
        for a, b in found
    ]
    task = {"data": {"text": f"🙂 {text}"}, "annotations": [{"result": results}]}
    return {"train.json": json.dumps([task]).encode()}


def _fours(n: int, places: Places) -> Files:
    entities = "|".join(f"{a},{b} X" for a, b in places)
    return {"train.txt": f"{'b ' * n}\n{'T ' * n}\n{entities}\n\n".encode()}


def _brat_lines(n: int, places: Places) -> Files:
    text, found = _characters(n, places)
    lines = "".join(f"T{i}\tX {a} {b}\n" for i, (a, b) in enumerate(found))
    return _brat(text, lines)


def _ace_mentions(n: int, places: Places) -> Files:
    return _ace(*_characters(n, places))


def _ere_mentions(n: int, places: Places) -> Files:
    return _ere(*_characters(n, places))


_REPEATING = {"ace": _ace_mentions, "rich-ere": _ere_mentions}
"""Formats that repeat the text of each annotation: nested ones make a file of n times n."""

_ANNOTATED: Dict[str, Callable[..., Files]] = {
    "papers-json": _papers,
    "gliner": _gliner,
    "mrc-json": _mrc,
    "prodigy": _prodigy,
    "doccano": _doccano,
    "label-studio": _label_studio,
    "lu-roth": _fours,
    "brat": _brat_lines,
    "litbank": _brat_lines,
    "xmi": _xmi,
}
