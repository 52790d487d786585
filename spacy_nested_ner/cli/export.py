"""`nested-ner export`: `.spacy` files to the formats that other systems read."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Iterator, List, Optional, Set

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import GoldArg, SpansKeyOpt
from spacy_nested_ner.cli.output import failing, keep_inputs, warn_of
from spacy_nested_ner.cli.pipelines import blank_pipeline, made_by_teach, read_as_one

if TYPE_CHECKING:
    from spacy.tokens import Doc


FormatArg = Annotated[str, typer.Argument(metavar="FORMAT", help="Format to write, see below")]
OutputArg = Annotated[Path, typer.Argument(metavar="OUTPUT", help="The file to write")]
QuestionsOpt = Annotated[
    Optional[str],
    typer.Option(
        help="For mrc-json: a ready-made set of questions, such as genia, or a JSON file with a "
        "question for each label"
    ),
]
LangOpt = Annotated[str, typer.Option(help="Language of the docs")]


def export_cli(
    corpus_format: FormatArg,
    data_path: GoldArg,
    output_path: OutputArg,
    spans_key: SpansKeyOpt = "sc",
    questions: QuestionsOpt = None,
    lang: LangOpt = "en",
) -> None:
    """Write gold data in the format of another system, with one item per sentence."""
    from spacy_nested_ner.corpora.export import export_docs
    from spacy_nested_ner.pipeline.gold import SURE

    with failing("Cannot export the data. Nothing was written."):
        keep_inputs(output_path, data_path)
        warn_of(read_as_one(data_path))
        taught: List[bool] = []
        without: List[str] = []
        docs = _docs(data_path, spans_key, lang, taught, without)
        ask = _Questions(questions)
        count, dropped = export_docs(docs, corpus_format, output_path, spans_key, ask)
    if without:
        msg.warn(f"{len(without)} docs without annotation are left out.")
    for warning in made_by_teach(sum(taught), len(taught), data_path):
        msg.warn(f"{warning} Those with a weight from {SURE} on are exported.")
    for (reason, label), number in dropped.items():
        msg.warn(f"Left out: {number} {label} ({reason})")
    if questions is not None and ask.from_template:
        labels = ", ".join(sorted(ask.from_template))
        msg.warn(
            f"{questions} has no question for: {labels}. Their questions are made from the "
            f"names ({ask(min(ask.from_template))!r}). For better ones, write a JSON file with a "
            "question for each label."
        )
    msg.good(f"Wrote {count} sentences to {output_path}")


def _docs(
    path: Path, spans_key: str, lang: str, taught: List[bool], without: List[str]
) -> "Iterator[Doc]":
    """Docs of a file that have the key; of spans that `nested-ner teach` has made, those of which
    it is sure.

    taught: takes for each doc whether its spans are such. without: takes the keys of each doc that
    lacks the key.
    Raises ValueError, with the file, if it is missing, is no DocBin, has no doc with the key, or
    has spans of `nested-ner teach` without their weights.
    """
    from spacy_nested_ner.corpora.docbin import read_docs
    from spacy_nested_ner.pipeline.gold import is_taught, keep_sure

    for doc in read_docs(path, blank_pipeline(lang).vocab):
        if spans_key not in doc.spans:
            without.append(", ".join(map(repr, doc.spans)) or "none")
            continue
        taught.append(is_taught(doc.spans[spans_key]))
        try:
            keep_sure(doc, spans_key)
        except ValueError as err:
            raise ValueError(f"{path}: {err}") from err
        yield doc
    if without and not taught:
        keys = without[0]
        raise ValueError(f"{path}: no spans under {spans_key!r}. Its spans keys: {keys}.")


class _Questions:
    """The question for a label: the given one, or made from its name."""

    def __init__(self, source: Optional[str]) -> None:
        from spacy_nested_ner.systems import all_systems

        asking = (system.questions_from(source) for system in all_systems())
        self._given, self._template = next(each for each in asking if each is not None)
        self.from_template: Set[str] = set()

    def __call__(self, label: str) -> str:
        if label not in self._given:
            self.from_template.add(label)
        return self._given.get(label) or self._template(label)
