"""Seeded damage to the files of a corpus."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import socket
import tarfile
import zipfile
from pathlib import Path
from random import Random
from typing import Any, Callable, Dict, List, Tuple

from tests.stress.bases import Files, Special

Change = Callable[[Random, bytes], bytes]

STRANGE = [
    *("\u2028", "\u0085", "\x0b", "\x0c", "\u200d", "\u202e", "e\u0301\u0302", "\ufeff", "\u00a0"),
    *("\U0001f469\u200d\U0001f680", "\U00020000", "\ufffd", "\u3000", "\x1c", "\r", "\U0010ffff"),
]
NUMBERS = [
    *("-1", "-99999999999999999999", "0", "999999999", "1" * 5000, "0.5", "1e3", "1e999", "NaN"),
    *(
        "Infinity",
        "-Infinity",
        "true",
        "null",
        '"1"',
        "x",
        "",
        "٣",
        "0x10",
        "1_0",
        str(2**64),
    ),
]
VALUES: List[Any] = [
    *(None, True, 0, -1, 1.5, 10**30, "", "x", "x" * 3000, [], {}, [[]], [None], {"a": {}}),
    *([1, 2, 3], {"text": "a", "start": 0}, "🙂", "\ud800", "a\0b", float("nan"), float("inf")),
]


def mutate(rng: Random, files: Files) -> Tuple[str, Files]:
    """The name of what was done, and the files after it; now and then twice."""
    names = []
    for _ in range(1 + (rng.random() < 0.2)):
        kind = rng.choice(_KINDS[_family(files)])
        names.append(kind.__name__.strip("_"))
        files = kind(rng, files)
    return "+".join(names), files


def write(files: Files, folder: Path) -> int:
    """Put files into a folder; returns their size in bytes."""
    size = 0
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, Special):
            _write_special(data, path)
        else:
            path.write_bytes(data)
            size += len(data)
    return size


def _write_special(kind: Special, path: Path) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            here = os.open(path.parent, os.O_RDONLY)  # names of sockets must be short
            try:
                bound.bind(f"/proc/self/fd/{here}/{path.name}")
            finally:
                os.close(here)
    else:
        path.symlink_to(kind.removeprefix("link:"))


# ------------------------------------------------------------------------------------- whole files


def _special_file(rng: Random, files: Files) -> Files:
    kinds = ("fifo", "socket", "folder", "link:nowhere", "link:.", "link:..", "link:/dev/zero")
    name = rng.choice(list(files))
    own = f"link:{Path(name).name}"
    return {**files, name: Special(rng.choice((*kinds, own)))}


def _stray_file(rng: Random, files: Files) -> Files:
    name = rng.choice(list(files))
    kind = rng.choice(("fifo", "socket", "folder", "link:nowhere", "link:.", "link:.."))
    own = Path(name).name.partition(".")[2]
    return {**files, str(Path(name).with_name(f"test_stray.{own}")): Special(kind)}


def _file_removed(rng: Random, files: Files) -> Files:
    gone = rng.choice(list(files))
    return {name: data for name, data in files.items() if name != gone or len(files) == 1}


def _file_swapped(rng: Random, files: Files) -> Files:
    first, second = rng.choice(list(files)), rng.choice(list(files))
    return {**files, first: files[second], second: files[first]}


# ------------------------------------------------------------------------------------------- bytes


def _truncated(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _beginning_removed(rng: Random, data: bytes) -> bytes:
    return data[rng.randrange(len(data) + 1) :]


def _slice_removed(rng: Random, data: bytes) -> bytes:
    start, end = _slice(rng, data)
    return data[:start] + data[end:]


def _slice_doubled(rng: Random, data: bytes) -> bytes:
    start, end = _slice(rng, data)
    return data[:end] + data[start:]


def _bytes_flipped(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20)) if data else 0):
        changed[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(changed)


def _bits_flipped(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2)) if data else 0):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _inserted(rng: Random, data: bytes) -> bytes:
    wrong = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\0", b"\0" * 500, b"\x1a", b"\r", b"\n", b"\t")
    return _with(rng, data, rng.choice((*wrong, rng.randbytes(30))))


def _strange_unicode(rng: Random, data: bytes) -> bytes:
    return _with(rng, data, rng.choice(STRANGE).encode())


def _marked_and_encoded(rng: Random, data: bytes) -> bytes:
    text = data.decode("utf8", "replace")
    encodings = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7", "latin-1", "cp037")
    if rng.random() < 0.4:
        return rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf" * 2)) + data
    return text.encode(rng.choice(encodings), "replace")


def _line_ends(rng: Random, data: bytes) -> bytes:
    return data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\n\r", b" ")))


def _empty(rng: Random, data: bytes) -> bytes:
    return rng.choice((b"", b" ", b"\n", b"\n\n\n", b"\xef\xbb\xbf", b"[]", b"{}", b"null", b"0"))


def _noise(rng: Random, data: bytes) -> bytes:
    return rng.randbytes(rng.choice((1, 100, 5000)))


def _long_word(rng: Random, data: bytes) -> bytes:
    word = rng.choice(("x", "<", "🙂", "(", "a.", '"', "\\", "9", "\u0301", "[", "&amp;", "0,1 X|"))
    return _with(rng, data, (word * rng.choice((300, 5000, 20_000))).encode())


def _repeated(rng: Random, data: bytes) -> bytes:
    return data * rng.choice((2, 20))


def _packed(rng: Random, data: bytes) -> bytes:
    library: Any = rng.choice((gzip, bz2, lzma))
    return library.compress(data)  # type: ignore[no-any-return]


def _packed_and_damaged(rng: Random, data: bytes) -> bytes:
    damage = rng.choice((_truncated, _bytes_flipped, _bits_flipped, _slice_removed, _slice_doubled))
    return damage(rng, rng.choice((_packed, _archived))(rng, data))


def _archived(rng: Random, data: bytes) -> bytes:
    stream = io.BytesIO()
    kind = rng.choice(("zip", "w:", "w:gz", "w:xz"))
    name = rng.choice(("a.txt", "a.xml", "02/wsj_0001.mrg", "doc.xmi", "../up.xml", "/abs.mrg"))
    if kind == "zip":
        with zipfile.ZipFile(stream, "w", rng.choice((0, 8, 12, 14))) as archive:
            archive.writestr(name, data)
            archive.writestr("TypeSystem.xml", data)
    else:
        with tarfile.open(fileobj=stream, mode=kind) as tar:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


# ------------------------------------------------------------------------------------------- lines


def _lines_changed(rng: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(7)
    if how == 0:
        rng.shuffle(lines)
    elif how == 1:
        lines.insert(j, lines[i])
    elif how == 2:
        del lines[i]
    elif how == 3:
        lines.insert(i, b"")
    elif how == 4:
        lines[i], lines[j] = lines[j], lines[i]
    elif how == 5:
        lines[i] = b""
    else:
        lines[i : i + 2] = [b" ".join(lines[i : i + 2])]
    return b"\n".join(lines)


def _field_changed(rng: Random, data: bytes) -> bytes:
    parts = re.split(rb"([ \t|;,])", data)
    i = rng.randrange(len(parts))
    parts[i] = rng.choice((b"", b" ", b"\t", parts[rng.randrange(len(parts))], parts[i] * 2))
    return b"".join(parts)


def _number_changed(rng: Random, data: bytes) -> bytes:
    found = list(re.finditer(rb"\d+", data))
    if not found:
        return data
    match = rng.choice(found)
    new = rng.choice((*NUMBERS, rng.choice(found).group().decode(), str(rng.randrange(300))))
    return data[: match.start()] + new.encode() + data[match.end() :]


def _numbers_swapped(rng: Random, data: bytes) -> bytes:
    found = list(re.finditer(rb"\d+", data))
    if len(found) < 2:
        return data
    i = rng.randrange(len(found) - 1)
    a, b = found[i], found[i + 1]
    between = data[a.end() : b.start()]
    return data[: a.start()] + b.group() + between + a.group() + data[b.end() :]


# -------------------------------------------------------------------------------------------- JSON


def _json_value_changed(rng: Random, data: bytes) -> bytes:
    def change(holder: Any, key: Any) -> None:
        holder[key] = rng.choice(VALUES)

    return _json(rng, data, change)


def _json_value_removed(rng: Random, data: bytes) -> bytes:
    def change(holder: Any, key: Any) -> None:
        del holder[key]

    return _json(rng, data, change)


def _json_value_doubled(rng: Random, data: bytes) -> bytes:
    def change(holder: Any, key: Any) -> None:
        if isinstance(holder, list):
            holder.insert(key, holder[key])
        else:
            holder[f"{key}{_AGAIN}"] = holder[key]  # becomes the same key twice

    return _json(rng, data, change)


def _json_value_moved(rng: Random, data: bytes) -> bytes:
    def change(holder: Any, key: Any) -> None:
        if isinstance(holder, list):
            rng.shuffle(holder)
        else:
            holder[rng.choice(list(holder))] = holder[key]

    return _json(rng, data, change)


def _json_nested(rng: Random, data: bytes) -> bytes:
    begin, end = rng.choice((("[", "]"), ('{"a":', "}")))
    depth = rng.choice((50, 99, 101, 1000, 20_000))
    value = begin * depth + "1" + rng.choice(("", end * depth))
    mark = "\u0000deep"

    def change(holder: Any, key: Any) -> None:
        holder[key] = mark

    return _json(rng, data, change).replace(json.dumps(mark).encode(), value.encode())


_AGAIN = "\u0001again"


def _json(rng: Random, data: bytes, change: Callable[[Any, Any], None]) -> bytes:
    """The file, list or lines, after a change of one value in the tree of one item."""
    try:
        text = data.decode("utf8")
        is_list = text.lstrip().startswith("[")
        items = json.loads(text) if is_list else list(map(json.loads, text.splitlines()))
    except (ValueError, RecursionError):
        return data
    places = [] if is_list and rng.random() < 0.9 else [(items, i) for i in range(len(items))]
    stack: List[Any] = [rng.choice(items)] if items else []
    while stack and len(places) < 2000:
        node = stack.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        if isinstance(node, (dict, list)):
            places += [(node, key) for key in keys]
            stack += [node[key] for key in keys if isinstance(node[key], (dict, list))]
    if places:
        change(*rng.choice(places))
    if is_list:
        text = json.dumps(items, indent=rng.choice((None, 1)))
    else:
        text = "\n".join(map(json.dumps, items))
    return text.replace(json.dumps(_AGAIN)[1:-1], "").encode()


# --------------------------------------------------------------------------------------------- XML


def _tag_changed(rng: Random, data: bytes) -> bytes:
    tags = [match.span() for match in re.finditer(rb"<[^<>]*>", data)]
    if len(tags) < 2:
        return data
    (a, b), (c, d) = sorted(rng.sample(tags, 2))
    how = rng.randrange(5)
    if how == 0:
        return data[:a] + data[b:]
    if how == 1:
        return data[:b] + data[a:]
    if how == 2:
        return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]
    if how == 3:
        return data[:a] + data[c:]
    return data[:d] + data[a:]


def _element_changed(rng: Random, data: bytes) -> bytes:
    """An element without others in it, removed or doubled."""
    found = list(re.finditer(rb"<(\w+)\b[^<>]*>[^<>]*</\1>|<[\w:]+\b[^<>]*/>", data))
    if not found:
        return data
    start, end = rng.choice(found).span()
    return data[:start] + data[start:end] * rng.choice((0, 2, 3)) + data[end:]


def _attribute_changed(rng: Random, data: bytes) -> bytes:
    found = list(re.finditer(rb' [\w:]+="([^"<>]*)"', data))
    if not found:
        return data
    match = rng.choice(found)
    if rng.random() < 0.3:
        return data[: match.start()] + data[match.end() :]
    new = rng.choice((*NUMBERS, "x" * 3000, "&#0;", "&lt;", "&none;", "0 0", "1 2 3 4"))
    return data[: match.start(1)] + new.replace('"', "").encode() + data[match.end(1) :]


def _declaration_changed(rng: Random, data: bytes) -> bytes:
    body = re.sub(rb"<\?xml.*?\?>|<!DOCTYPE.*?>", b"", data)
    encoding = rng.choice(("x-none", "hex", "undefined", "utf-7", "shift_jis", "cp1250", "UTF-16"))
    bomb = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))
    declaration = rng.choice(
        (
            f'<?xml version="1.0" encoding="{encoding}"?>',
            '<?xml version="9.9"?>',
            f'<!DOCTYPE a [<!ENTITY e0 "ha">{bomb}]>',
            '<!DOCTYPE a [<!ENTITY e9 SYSTEM "file:///etc/hostname">]>',
            '<!DOCTYPE a SYSTEM "http://127.0.0.1:9/none.dtd">',
            '<!DOCTYPE a [<!ENTITY % p SYSTEM "file:///dev/zero"> %p;]>',
            "<!-- -->" * 2000,
        )
    )
    if "e9" in declaration:
        body = re.sub(rb">([^<>]+)<", rb">&e9;<", body, count=1)
    return declaration.encode() + body


def _xml_nested(rng: Random, data: bytes) -> bytes:
    tags = re.findall(rb"<([\w:]+)[^<>]*>", data)
    if not tags:
        return data
    tag, depth = rng.choice(tags), rng.choice((10, 300, 20_000))
    end = rng.choice((b"", b"</" + tag + b">"))
    place = rng.choice([m.end() for m in re.finditer(rb">", data)])
    return data[:place] + (b"<" + tag + b">") * depth + end * depth + data[place:]


def _xml_inserted(rng: Random, data: bytes) -> bytes:
    pieces = (b"<![CDATA[ ]]>", b"<!-- x -->", b"<?x y?>", b"&#x1F600;", b"&amp;", b"<x/>", b"&#0;")
    place = rng.choice([0, *(m.end() for m in re.finditer(rb">", data))])
    return data[:place] + rng.choice((*pieces, b"<" * 5000)) + data[place:]


# --------------------------------------------------------------------------------------- selection


def _slice(rng: Random, data: bytes) -> Tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 10, 300)))


def _with(rng: Random, data: bytes, new: bytes) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + new + data[place:]


def _in_one_file(change: Change) -> Callable[[Random, Files], Files]:
    def changed(rng: Random, files: Files) -> Files:
        whole = [name for name, data in files.items() if not isinstance(data, Special)]
        if not whole:
            return files
        name = rng.choice(whole)
        return {**files, name: change(rng, files[name])}  # type: ignore[arg-type]

    changed.__name__ = change.__name__
    return changed


_FILES = [_special_file, _stray_file, _file_removed, _file_swapped]
_BYTES: List[Change] = [
    *(_truncated, _beginning_removed, _slice_removed, _slice_doubled, _bytes_flipped),
    *(_bits_flipped, _inserted, _strange_unicode, _marked_and_encoded, _line_ends, _empty),
    *(_noise, _long_word, _repeated, _packed, _packed_and_damaged, _archived),
]
_LINES: List[Change] = [_lines_changed, _field_changed, _number_changed, _numbers_swapped]
_JSON: List[Change] = [
    *(_json_value_changed, _json_value_removed, _json_value_doubled, _json_value_moved),
    _json_nested,
]
_XML: List[Change] = [
    *(_tag_changed, _element_changed, _attribute_changed, _declaration_changed, _xml_nested),
    _xml_inserted,
]
_KINDS: Dict[str, List[Callable[[Random, Files], Files]]] = {
    family: _FILES + [_in_one_file(change) for change in [*_BYTES, *(3 * (_LINES + own))]]
    for family, own in {"json": _JSON, "xml": _XML, "lines": _LINES}.items()
}


def _family(files: Files) -> str:
    data = next((data for data in files.values() if not isinstance(data, Special)), b"")
    begin = bytes(data[:200]).lstrip() if not isinstance(data, Special) else b""
    return "json" if begin[:1] in (b"[", b"{") else "xml" if begin[:1] == b"<" else "lines"
