"""Docstrings for mkdocstrings. Those of the package are plain text with `name: what it is` lines,
which become a list here."""

import re
from typing import Any

from griffe import Extension, Object

# "spans: ...", "start, end: ...", "RAISES (ValueError): ..."
ENTRY = re.compile(r"^([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*(?: \(\w+\))?): (?=\S)")
# The next entry on the same line.
NEXT = re.compile(r"(?<=[.;]) ([a-z_]\w*(?:, [a-z_]\w*)*): (?=\S)")


def as_markdown(text: str) -> str:
    """A docstring with its `name: what it is` lines as a list."""
    lines, in_list = [], False
    for line in text.splitlines():
        entry = ENTRY.match(line)
        if entry and not in_list and lines and lines[-1].strip():
            lines.append("")
        in_list = bool(entry) or (in_list and bool(line.strip()))
        if entry:
            line = f"- `{entry[1]}`: {line[entry.end() :]}"
        lines.append(NEXT.sub(r"\n- `\1`: ", line) if in_list else line)
    return "\n".join(lines)


class PlainDocstrings(Extension):
    """Rewrites each docstring once, when its object is read."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
