"""A command whose help ends with the formats that it knows."""

from __future__ import annotations

from typing import Any, Dict

from typer.core import TyperCommand


class FormatsCommand(TyperCommand):
    """Asks for its formats only when the help is shown: readers are loaded by then, not before."""

    def formats(self) -> Dict[str, str]:
        """A line of description by format."""
        raise NotImplementedError

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the formats below the options."""
        rows = sorted(self.formats().items())
        with formatter.section("Formats"):
            formatter.write_dl(
                [(name, next(iter(text.strip().splitlines()), "")) for name, text in rows]
            )
