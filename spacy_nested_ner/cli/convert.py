"""`nested-ner convert`: corpus files to `.spacy` files."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from collections import Counter
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Dict, List, Sequence, Tuple

import typer
from wasabi import msg

if TYPE_CHECKING:
    from spacy_nested_ner.corpora import ReadOptions
    from spacy_nested_ner.corpora.statistics import SplitStatistics


class Tokens(str, Enum):
    """Whose tokens the docs have."""

    published = "published"
    spacy = "spacy"


class Group(str, Enum):
    """What becomes one doc."""

    sentence = "sentence"
    article = "article"


FormatArg = Annotated[str, typer.Argument(metavar="FORMAT", help="Corpus format: genia")]
InputArg = Annotated[Path, typer.Argument(metavar="INPUT", help="Corpus file, as distributed")]
OutputArg = Annotated[
    Path,
    typer.Argument(
        metavar="OUTPUT_DIR", help="Folder for train.spacy, dev.spacy, test.spacy and report.json"
    ),
]
TokensOpt = Annotated[
    Tokens,
    typer.Option(help="Tokens of the published data set, or spaCy's tokenizer on the raw text"),
]
GroupOpt = Annotated[Group, typer.Option(help="One doc per sentence or per article")]
AllLabelsOpt = Annotated[
    bool, typer.Option("--all-labels", help="Keep every label of a span, not one")
]
SpansKeyOpt = Annotated[str, typer.Option(help="Key of the entities in doc.spans")]
LangOpt = Annotated[str, typer.Option(help="Language of the tokenizer")]


def convert_cli(
    corpus_format: FormatArg,
    input_path: InputArg,
    output_dir: OutputArg,
    tokens: TokensOpt = Tokens.published,
    group: GroupOpt = Group.sentence,
    all_labels: AllLabelsOpt = False,
    spans_key: SpansKeyOpt = "sc",
    lang: LangOpt = "en",
) -> None:
    """Convert a corpus with nested entities into spaCy's binary format and report what it holds."""
    from spacy_nested_ner.corpora import ReadOptions

    options = ReadOptions(tokens=tokens.value, group=group.value, all_labels=all_labels)
    try:
        statistics = _convert(corpus_format, input_path, output_dir, options, spans_key, lang)
    except (ValueError, ImportError, OSError) as err:
        msg.fail("Cannot convert the corpus. Nothing was written.", str(err), exits=1)
    print_report(statistics)
    empty = [split for split, counts in statistics.items() if not counts.documents]
    if empty:
        msg.warn(f"No documents for {', '.join(empty)}: the files are there but empty.")
    files = ", ".join(f"{split}.spacy" for split in statistics)
    msg.good(f"Wrote {files} and report.json to {output_dir}")


def _convert(
    corpus_format: str,
    input_path: Path,
    output_dir: Path,
    options: "ReadOptions",
    spans_key: str,
    lang: str,
) -> "Dict[str, SplitStatistics]":
    from dataclasses import asdict

    import spacy
    from tqdm import tqdm

    from spacy_nested_ner.corpora import get_reader
    from spacy_nested_ner.corpora.convert import convert_corpus

    reader = get_reader(corpus_format)
    source = {"format": corpus_format, "source": input_path.name, **asdict(options), "lang": lang}
    nlp = spacy.blank(lang)
    records = tqdm(reader(input_path, options), desc="Converting", unit=" docs", mininterval=0.5)
    return convert_corpus(records, output_dir, nlp, spans_key, source)


def print_report(statistics: "Dict[str, SplitStatistics]") -> None:
    """Print the counts of all splits as one table."""
    splits = list(statistics.values())
    rows: List[Tuple[str, ...]] = []

    def add(name: str, values: Sequence[object]) -> None:
        rows.append((name, *map(str, values)))

    def add_each(prefix: str, counters: Sequence[Counter]) -> None:
        for key in sorted({key for counter in counters for key in counter}):
            add(f"  {prefix}{key}", [counter[key] for counter in counters])

    add("documents", [s.documents for s in splits])
    add("sentences", [s.sentences for s in splits])
    add("tokens", [s.tokens for s in splits])
    add("entities", [s.entities for s in splits])
    add_each("", [s.labels for s in splits])
    add("nested entities", [s.nested_entities for s in splits])
    add("  % of entities", [f"{s.nested_percent:.2f}" for s in splits])
    add_each("at depth ", [s.depths for s in splits])
    add("sentences with nested", [s.nested_sentences for s in splits])
    add("longest entity (tokens)", [s.max_length for s in splits])
    add("crossing pairs", [s.crossing_pairs for s in splits])
    add("label pairs on one span", [s.same_span.total() for s in splits])
    add_each("", [s.same_span for s in splits])
    add("left out", [s.dropped.total() for s in splits])
    add_each("", [s.dropped_by_reason() for s in splits])
    aligns = ("l", *("r" for _ in splits))
    msg.table(rows, header=("", *statistics), divider=True, aligns=aligns)
