"""A command whose help ends with the formats that it knows."""

from __future__ import annotations

from typing import Any, Dict

from typer.core import TyperCommand


class FormatsCommand(TyperCommand):
    """Lists the registered readers below its help, `export` the writers. Asks for them only when
    the help is shown: they are loaded by then, not before."""

    def formats(self) -> Dict[str, str]:
        """A line of description by format."""
        from spacy_nested_ner.corpora import readers, writers

        registry = writers if self.name == "export" else readers
        return {name: each.__doc__ or "" for name, each in registry.get_all().items()}

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the formats below the options."""
        rows = sorted(self.formats().items())
        with formatter.section("Formats"):
            formatter.write_dl(
                [(name, next(iter(text.strip().splitlines()), "")) for name, text in rows]
            )
