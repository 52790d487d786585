"""A small corpus of each format, and how many entities one holds, counted without the readers."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

SAMPLES = Path(__file__).parents[1] / "corpora" / "samples"


class Special(str):
    """What lies in a folder and is no regular file: "fifo", "socket", "folder", or a link
    "link:TARGET"."""


Files = Dict[str, Union[bytes, Special]]
"""Contents by their path in the folder of a corpus."""


class Count(NamedTuple):
    """entities: annotations. items: whole items that the format leaves out (rejected answers)."""

    entities: int
    items: int = 0


@dataclass
class Base:
    """files: the corpus. entry: what of it is given to the command; "" for the folder.
    count: entities of (changed) files; None where that cannot be told."""

    name: str
    files: Files
    entry: str
    count: Callable[[Files], Optional[Count]]
    settings: Dict[str, str] = field(default_factory=dict)


def bases() -> List[Base]:
    """One for each format, several where a format has several forms."""
    found = [*_json_bases(), *_line_bases(), *_xml_bases()]
    return [base for base in found if base.files]


# ------------------------------------------------------------------------------------------- JSON


def _json_bases() -> Iterator[Base]:
    genia, tools = SAMPLES / "genia", SAMPLES / "annotation_tools"
    papers = _some(genia / "papers_json", "genia_dev_context.json", "genia_test_context.json")
    yield Base("papers-json", papers, "", _counting(lambda i: (len(i["entities"]), 0)))
    mrc = _some(genia / "mrc_json", "mrc-ner.dev", "mrc-ner.test")
    yield Base("mrc-json", mrc, "", _counting(_in_mrc))
    for name, file, count in (
        ("prodigy", "prodigy.jsonl", _counting_files(_in_prodigy)),
        ("doccano", "doccano.jsonl", _counting(_in_doccano)),
        ("gliner", "gliner.json", _counting(lambda item: (len(item["ner"]), 0))),
        ("label-studio", "label_studio.json", _counting(_in_label_studio)),
        ("label-studio", "label_studio_min.json", _counting_files(_in_label_studio_min)),
    ):
        yield Base(name, _some(tools, file), file, count)


Counts = Callable[[Files], Optional[Count]]


def _counting(of_item: Callable[[Any], Tuple[int, int]]) -> Counts:
    """Of items that count by themselves."""

    def of_items(items: List[Any]) -> Tuple[int, int]:
        counts = [of_item(item) for item in items]
        return sum(a for a, _ in counts), sum(b for _, b in counts)

    return _counting_files(of_items)


def _counting_files(of_items: Callable[[List[Any]], Tuple[int, int]]) -> Counts:
    """Of the items of each file; None where a file does not hold any."""

    def count(files: Files) -> Optional[Count]:
        try:
            counts = [of_items(_items(data.decode("utf-8-sig"))) for data in _contents(files)]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return Count(sum(a for a, _ in counts), sum(b for _, b in counts))

    return count


def _items(text: str) -> List[Any]:
    if text.lstrip().startswith("["):
        return json.loads(text)
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _in_mrc(item: Any) -> Tuple[int, int]:
    return len(item["span_position"] if "span_position" in item else item["start_position"]), 0


def _in_prodigy(items: List[Any]) -> Tuple[int, int]:
    """Of several accepted answers to one input in a file the last counts."""
    left_out = 0
    answers: Dict[Any, int] = {}
    for i, item in enumerate(items):
        if item.get("answer", "accept") != "accept":
            left_out += 1
            continue
        given = item.get("_input_hash")
        key = i if given is None else (str(given), str(item.get("text")))
        left_out += key in answers
        answers[key] = len(item.get("spans") or [])
    return sum(answers.values()), left_out


def _in_doccano(item: Any) -> Tuple[int, int]:
    return sum(len(item.get(name) or []) for name in ("entities", "label", "labels")), 0


def _in_label_studio_min(items: List[Any]) -> Tuple[int, int]:
    """Of several items of one task in a file the first that is annotated counts."""
    entities = left_out = 0
    tasks: Set[Any] = set()
    for i, item in enumerate(items):
        given = item.get("id")
        task = i if given is None else (str(given), str(item.get("text")))
        found, lost = (0, 1) if task in tasks else _in_label_studio(item)
        entities, left_out = entities + found, left_out + lost
        if not lost:
            tasks.add(task)
    return entities, left_out


def _in_label_studio(item: Any) -> Tuple[int, int]:
    if "data" not in item:
        lists = [value for value in item.values() if _holds_regions(value)]
        label = lists[0] if lists else item.get("label")
        if isinstance(label, list):
            return _labels(label), 0
        return 0, int(item.get("annotation_id", item.get("annotator")) in (None, ""))
    given = item.get("annotations" if "annotations" in item else "completions") or []
    valid = [annotation for annotation in given if not annotation.get("was_cancelled")]
    if not valid:
        return 0, 1
    marked = [annotation for annotation in valid if annotation.get("ground_truth")] + valid
    values = [result.get("value") for result in marked[0].get("result") or []]
    return _labels([value for value in values if isinstance(value, dict)]), len(valid) - 1


def _holds_regions(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(each, dict) and {"start", "globalOffsets"} & set(each) for each in value)
        and any(each.get("labels") or each.get("hypertextlabels") for each in value)
    )


def _labels(regions: List[Any]) -> int:
    """A region without labels counts as one that is left out."""
    placed = [region for region in regions if {"start", "globalOffsets"} & set(region)]
    labels = [region.get("labels", region.get("hypertextlabels")) for region in placed]
    unplaced = sum(len(region.get("labels") or []) for region in regions if region not in placed)
    return sum(len(given) if given else 1 for given in labels) + unplaced


# ------------------------------------------------------------------------------------------ lines


def _line_bases() -> Iterator[Base]:
    nne = _beginnings(_tree(SAMPLES / "nne", "*.mrg"), 2)
    yield Base("nne", nne, "", _count_fours)
    four = {
        "train.txt": b"Bell of LA\nNNP IN NNP\n0,1 ORG|0,3 NAME|2,3 CITY\n\na b\nDT NN\n\n\n",
        "dev.txt": "Zoë 🙂 x y\nNNP . X X\n0,1 PER|0,4 ORG|3,4 X\n\n".encode(),
    }
    yield Base("lu-roth", dict(four), "", _count_fours)
    germeval = _beginnings(_some(SAMPLES / "germeval2014", "NER-de-dev.tsv"), 5)
    yield Base("germeval2014", germeval, "", _count_tags(2, 3))
    few = _beginnings(_some(SAMPLES / "few_nerd", "test-inter.txt", "val-inter-new.txt"), 3)
    yield Base("few-nerd", few, "", _count_tags(1, scheme="IO"))
    conll = (
        "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\nGerman JJ B-NP B-MISC\n"
        "call NN I-NP O\n. . O O\n\nPeter NNP B-NP B-PER\nBlackburn NNP I-NP I-PER\n\n"
    )
    files: Files = {"eng.train": conll.encode(), "eng.testa": conll.encode()}
    yield Base("conll", files, "", _count_tags(-1))
    weibo = "科0\tO\n技1\tO\n北0\tB-GPE.NAM\n京1\tI-GPE.NAM\n大0\tO\n\n我0\tB-PER.PRO\n在0\tO\n"
    yield Base("weibo", {"weiboNER.conll.train": weibo.encode()}, "", _count_tags(-1))
    layers = "Bell B-ORG O\nof I-ORG O\nLA I-ORG B-GPE\n. O O\n\nRome B-GPE O\n\n"
    yield Base(
        "columns", {"data.txt": layers.encode()}, "data.txt", _count_tags(1, 2), {"tags": "1,2"}
    )
    books = sorted((SAMPLES / "litbank" / "brat").glob("74_*")) + sorted(
        (SAMPLES / "litbank" / "brat").glob("768_*")
    )
    brat: Files = {file.name: file.read_bytes() for file in books}
    yield Base("litbank", dict(brat), "", _count_brat)
    yield Base("brat", dict(brat), "", _count_brat)


def _count_fours(files: Files) -> Optional[Count]:
    texts = _texts(files)
    if texts is None:
        return None
    lines = [line for text in texts for line in text.split("\n")]
    return Count(
        sum(len(re.findall(r"\d+,\d+ ", line)) for line in lines if re.match(r"\s*\d+,\d+ ", line))
    )


def _count_brat(files: Files) -> Optional[Count]:
    texts = _texts({name: data for name, data in files.items() if name.endswith(".ann")})
    if texts is None:
        return None
    found = {name for name, data in files.items() if data != Special("folder")}
    alone = [n for n in found if n.endswith(".txt") and f"{n[:-4]}.ann" not in found]
    lines = [line for text in texts for line in text.split("\n")]
    return Count(sum(line.startswith("T") for line in lines), len(alone))


def _count_tags(*columns: int, scheme: str = "") -> Callable[[Files], Optional[Count]]:
    def count(files: Files) -> Optional[Count]:
        texts = _texts(files)
        if texts is None:
            return None
        return Count(
            sum(
                _begun(tags, scheme)
                for text in texts
                for sentence in _sentences(text)
                for tags in ([_cell(row, column) for row in sentence] for column in columns)
            )
        )

    return count


def _sentences(text: str) -> Iterator[List[List[str]]]:
    rows: List[List[str]] = []
    for line in [*text.split("\n"), ""]:
        cells = line.rstrip("\r").split("\t") if "\t" in line else line.split()
        if any(cell.strip() for cell in cells) and cells[0] not in ("-DOCSTART-", "#"):
            rows.append(cells)
        elif rows:
            yield rows
            rows = []


def _cell(row: List[str], column: int) -> str:
    return row[column].strip() or "O" if -len(row) <= column < len(row) else "O"


def _begun(tags: List[str], scheme: str) -> int:
    """Entities of a sequence: each tag that does not go on the one before it."""
    prefixed = scheme != "IO" and all(re.match(r"O$|[BIESMLU][-_]", tag) for tag in tags)
    found, before = 0, "O"
    for tag in tags:
        if prefixed and tag != "O":
            new = tag[0] in "BSU" or before[2:] != tag[2:] or before[0] in "ESLU"
        else:
            new = tag.removeprefix("I-") != before.removeprefix("I-")
        found += tag != "O" and new
        before = tag
    return found


# -------------------------------------------------------------------------------------------- XML


def _xml_bases() -> Iterator[Base]:
    ace = SAMPLES / "ace"
    news = ace / "ace2005" / "data" / "English" / "nw" / "timex2norm"
    yield Base("ace", _tree(news, "PITFALL*"), "", _count_elements("entity_mention", ".apf.xml"))
    ere = _tree(ace / "kbp2017" / "data", "*NYT*")
    yield Base("rich-ere", ere, "", _count_elements("entity_mention", ".rich_ere.xml"))
    genia = _some(SAMPLES / "genia", "GENIAcorpus3.02.articleA.pos.xml")
    terms = (
        b'<?xml version="1.0" encoding="UTF-8"?>\n<set><article><articleinfo><bibliomisc>M:1'
        b'</bibliomisc></articleinfo><title><sentence><cons lex="a" sem="G#protein_molecule">IL-2 '
        b'<cons lex="b" sem="G#DNA_domain_or_region">gene</cons></cons> and <cons lex="c">x</cons> '
        b'&amp; <cons sem="(AND G#other_name G#other_name)">y z</cons></sentence></title><abstract>'
        b'<sentence>The <cons sem="G#cell_type">T cell</cons>.</sentence></abstract></article>'
        b"</set>"
    )
    for files in (genia, {"GENIA.xml": terms}):
        yield Base("genia", files, next(iter(files)), _count_elements("cons", ".xml"))
    xmi = _xmi()
    yield Base("xmi", xmi, "", _count_elements(r"\w+:NamedEntity", ".xmi"))


def _xmi() -> Files:
    """Empty without the library that reads it."""
    try:
        import cassis  # noqa: F401
    except ImportError:
        return {}
    from tests.corpora.formats.test_xmi import write

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def _count_elements(tag: str, suffix: str) -> Callable[[Files], Optional[Count]]:
    def count(files: Files) -> Optional[Count]:
        texts = _texts({name: data for name, data in files.items() if name.endswith(suffix)})
        if texts is None:
            return None
        texts = [re.sub(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>", "", text, flags=re.S) for text in texts]
        return Count(sum(len(re.findall(rf"<{tag}(?=[\s/>])", text)) for text in texts))

    return count


# ------------------------------------------------------------------------------------------ files


def _some(folder: Path, *names: str) -> Files:
    return {name: (folder / name).read_bytes() for name in names}


def _tree(folder: Path, pattern: str) -> Files:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob(pattern))
        if file.is_file()
    }


def _beginnings(files: Files, sentences: int) -> Files:
    """Files with the first sentences only."""
    return {
        name: b"\n\n".join([*data.split(b"\n\n")[:sentences], b""])
        for name, data in files.items()
        if isinstance(data, bytes)
    }


def _contents(files: Files) -> List[bytes]:
    """What is in files that are packed or not. Raises ValueError if one cannot be unpacked."""
    return [_unpack(data) for data in files.values()]


def _unpack(data: Union[bytes, Special]) -> bytes:
    if isinstance(data, Special):
        raise ValueError("no file")
    libraries: Dict[bytes, Any] = {b"\x1f\x8b": gzip, b"BZh": bz2, b"\xfd7zXZ": lzma}
    for magic, library in libraries.items():
        if data.startswith(magic):
            try:
                return bytes(library.decompress(data))
            except (OSError, EOFError, zlib.error, lzma.LZMAError) as err:
                raise ValueError(str(err)) from err
    return data


def _texts(files: Files) -> Optional[List[str]]:
    try:
        texts = [data.decode("utf-8-sig") for data in _contents(files)]
    except ValueError:
        return None
    return None if any("\0" in text for text in texts) else texts  # UTF-16, which XML may be
