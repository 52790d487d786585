"""One annotation of a corpus made wrong, and how many are left out with it."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any, Dict, List, Optional, Tuple

from tests.stress.bases import Base, Count, Files, Special

OUTSIDE = 99_999_999
"""A place that is in no text."""


def break_one(rng: Random, base: Base) -> Optional[Tuple[Files, Count]]:
    """The files with one annotation that points outside of its text (or a line without its tag),
    and the annotations of what can be left out with it: itself, its sentence or its item. None
    for formats whose reading cannot go on behind an error."""
    breaker = _BREAKERS.get(base.name)
    if breaker is None:
        return None
    while True:
        name = rng.choice(sorted(base.files))
        data = base.files[name]
        broken = None if isinstance(data, Special) else breaker(rng, data.decode(), base, name)
        if broken is not None:
            text, lost = broken
            return {**base.files, name: text.encode()}, lost


Broken = Optional[Tuple[str, Count]]


def _item(rng: Random, text: str, base: Base, name: str) -> Broken:
    """In JSON a whole item is left out; of BERT-MRC all items of its sentence."""
    is_list = text.lstrip().startswith("[")
    items = json.loads(text) if is_list else list(map(json.loads, text.splitlines()))
    places = [(item, place) for item in items for place in _places(item)]
    if not places:
        return None
    item, (holder, key, wrong) = rng.choice(places)
    same = [i for i in items if i is item or ("qas_id" in i and i["context"] == item["context"])]
    count = base.count({name: json.dumps(same).encode()})
    assert count is not None
    holder[key] = wrong
    lines = "\n".join(map(json.dumps, items))
    return json.dumps(items) if is_list else lines, count


def _places(item: Dict[str, Any]) -> List[Tuple[Any, Any, Any]]:
    """Where the places of annotations stand that count, and something wrong for each."""
    if item.get("answer", "accept") != "accept":
        return []
    if "annotations" in item:
        valid = [a for a in item["annotations"] if not a.get("was_cancelled")]
        chosen = ([a for a in valid if a.get("ground_truth")] + valid)[:1]
        values = [result.get("value", {}) for a in chosen for result in a["result"]]
        return [(value, "start", OUTSIDE) for value in values if "labels" in value]
    if "span_position" in item:
        texts = item["span_position"]
        return [(texts, i, f"{OUTSIDE};{OUTSIDE}") for i in range(len(texts))]
    found: List[Tuple[Any, Any, Any]] = []
    for name in ("entities", "spans", "ner", "label", "labels"):
        for entity in item.get(name) or []:
            first = 0 if isinstance(entity, list) else "start"
            key = "start_offset" if "start_offset" in entity else first
            found.append((entity, key, OUTSIDE))
    return found


def _fours(rng: Random, text: str, base: Base, name: str) -> Broken:
    """Of four lines the whole sentence is left out."""
    lines = text.split("\n")
    places = [i for i, line in enumerate(lines) if re.match(r"\d+,\d+ ", line)]
    i = rng.choice(places)
    entities = lines[i].split("|")
    j = rng.randrange(len(entities))
    entities[j] = re.sub(r"^\d+", str(OUTSIDE), entities[j])
    lines[i] = "|".join(entities)
    return "\n".join(lines), Count(len(entities))


def _rows(rng: Random, text: str, base: Base, name: str) -> Broken:
    """Of a column file the whole sentence is left out."""
    sentences = text.split("\n\n")
    i = rng.randrange(len(sentences))
    rows = sentences[i].split("\n")
    count = base.count({name: sentences[i].encode()})
    j = rng.randrange(len(rows))
    cells = rows[j].split()
    if count is None or len(cells) < 2 or cells[0] == "#":
        return None
    rows[j] = "\t".join(cells[:2]) if base.name == "germeval2014" else cells[0]
    sentences[i] = "\n".join(rows)
    return "\n\n".join(sentences), count


def _annotation(pattern: str) -> Any:
    """Where annotations stand by themselves, one is left out. pattern: its place is group 1."""

    def broken(rng: Random, text: str, base: Base, name: str) -> Broken:
        found = list(re.finditer(pattern, text, re.MULTILINE))
        if not found:
            return None
        match = rng.choice(found)
        return text[: match.start(1)] + str(OUTSIDE) + text[match.end(1) :], Count(1)

    return broken


_BREAKERS: Dict[str, Any] = {
    **dict.fromkeys(
        ("papers-json", "mrc-json", "prodigy", "doccano", "gliner", "label-studio"), _item
    ),
    **dict.fromkeys(("nne", "lu-roth"), _fours),
    **dict.fromkeys(("germeval2014", "few-nerd", "columns"), _rows),
    **dict.fromkeys(("brat", "litbank"), _annotation(r"^T\S+\t\S+ (\d+) ")),
    "ace": _annotation(r'<entity_mention\b[^<>]*>\s*<extent>\s*<charseq START="(\d+)"'),
    "rich-ere": _annotation(r'<entity_mention\b[^<>]* offset="(\d+)"'),
    "xmi": _annotation(r'<\w+:NamedEntity [^<>]*end="(\d+)"'),
}
