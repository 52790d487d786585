"""`nested-ner convert`: corpus files to `.spacy` files."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from collections import Counter
from enum import Enum
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
)

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import LangOpt, SpansKeyOpt
from spacy_nested_ner.cli.output import failing, keep_inputs, print_table, warn_of
from spacy_nested_ner.cli.pipelines import blank_pipeline

if TYPE_CHECKING:
    from spacy_nested_ner.corpora import ReadOptions, Record
    from spacy_nested_ner.corpora.read import SplitOptions
    from spacy_nested_ner.corpora.statistics import SplitStatistics


class Tokens(str, Enum):
    """Whose tokens the docs have."""

    published = "published"
    spacy = "spacy"
    character = "character"
    cut = "cut"


class Group(str, Enum):
    """What becomes one doc."""

    sentence = "sentence"
    article = "article"


class Sentences(str, Enum):
    """Where sentences begin if the corpus does not say so."""

    corpus = "corpus"
    lines = "lines"
    rules = "rules"


MOST_MISALIGNED, OF_LABEL = 0.02, 0.1
"""Shares of all entities, and of those of a label, that may be so without a warning."""

DEV_REMEDY = (
    "Training needs a dev set: name a file for it with dev=PATH, split by document with --resplit, "
    "or, if there is only one document, cut its text into several."
)

FormatArg = Annotated[str, typer.Argument(metavar="FORMAT", help="Corpus format, see below")]
InputsArg = Annotated[
    List[str],
    typer.Argument(
        metavar="INPUT...",
        help="Files or folders as distributed. Write train=PATH, dev=PATH, test=PATH if the "
        "name does not say which split it is",
    ),
]
OutputArg = Annotated[
    Path,
    typer.Argument(
        metavar="OUTPUT", help="Folder for train.spacy, dev.spacy, test.spacy and report.json"
    ),
]
TokensOpt = Annotated[
    Tokens,
    typer.Option(
        help="published: those of the corpus (spaCy's if it is plain text); spacy: spaCy's "
        "tokenizer on the text; character: single characters; cut: as published, but also cut "
        "at entity boundaries"
    ),
]
GroupOpt = Annotated[Group, typer.Option(help="One doc per sentence or per article")]
SentencesOpt = Annotated[
    Sentences,
    typer.Option(
        help="Sentences if the corpus marks none. corpus: none; lines: one per line; rules: by "
        "spaCy's rules"
    ),
]
AllLabelsOpt = Annotated[
    Optional[bool],
    typer.Option(
        "--all-labels/--one-label",
        help="Keep all labels of a span, or only one (default: as in the published data set)",
        show_default=False,
    ),
]
SetOpt = Annotated[
    Optional[List[str]],
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A setting of the format, see docs/guide/corpora.md"
    ),
]
SkipOpt = Annotated[bool, typer.Option("--skip-errors", help="Skip malformed input and count it")]
SeedOpt = Annotated[
    int, typer.Option(help="Seed of the split by document, where the corpus has no split")
]
FractionsOpt = Annotated[str, typer.Option(help="Shares of train, dev and test in that split")]
ResplitOpt = Annotated[
    bool, typer.Option("--resplit", help="Split by document even if the corpus has a split")
]


def convert_cli(
    corpus_format: FormatArg,
    inputs: InputsArg,
    output_dir: OutputArg,
    tokens: TokensOpt = Tokens.published,
    group: GroupOpt = Group.sentence,
    sentences: SentencesOpt = Sentences.corpus,
    all_labels: AllLabelsOpt = None,
    settings: SetOpt = None,
    skip_errors: SkipOpt = False,
    split_seed: SeedOpt = 0,
    split_fractions: FractionsOpt = "0.8,0.1,0.1",
    resplit: ResplitOpt = False,
    spans_key: SpansKeyOpt = "sc",
    lang: LangOpt = "en",
) -> None:
    """Convert a corpus with nested entities into spaCy's binary format and report what it holds."""
    from spacy_nested_ner.corpora import Problems, ReadOptions

    with failing("Cannot convert the corpus. Nothing was written."):
        options = ReadOptions(
            tokens=tokens.value,
            group=group.value,
            sentences=sentences.value,
            all_labels=all_labels,
            settings=_settings(settings or []),
            problems=Problems(skip_errors),
        )
        split = _split_options(split_fractions, split_seed, resplit)
        statistics = _convert(corpus_format, inputs, output_dir, options, split, spans_key, lang)
    print_report(statistics)
    warn_of(_misaligned(statistics))
    if options.problems.count:
        msg.warn(f"Skipped {options.problems.count} errors, the first ones are in report.json.")
    if not any(counts.entities for counts in statistics.values()):
        msg.warn(f"The corpus has no entities. Is {corpus_format!r} its format?")
    empty = [name for name, counts in statistics.items() if not counts.documents]
    if empty:
        remedy = _remedy(empty, inputs)
        msg.warn(f"No documents for {', '.join(empty)}: the files are written, but empty.{remedy}")
    files = ", ".join(f"{name}.spacy" for name in statistics)
    msg.good(f"Wrote {files} and report.json to {output_dir}")


def _remedy(empty: List[str], inputs: List[str]) -> str:
    """How to get documents for the splits that have none, if training needs them."""
    from spacy_nested_ner.corpora.read import Source
    from spacy_nested_ner.corpora.splits import split_of_name

    sources = [Source.parse(text) for text in inputs]
    if "train" not in empty:
        all_train = all(source.split == "train" for source in sources)
        return f" {DEV_REMEDY}" if "dev" in empty and not all_train else ""
    if not any(source.split for source in sources) and any(
        source.path.is_dir() or split_of_name(source.path.name) for source in sources
    ):
        return (
            " The name of a file or folder says where it belongs. Name one for it with "
            "train=PATH, or split by document with --resplit."
        )
    return ""


def _misaligned(statistics: "Dict[str, SplitStatistics]") -> Iterator[str]:
    """A warning where more entities than a few begin or end inside a token."""
    from spacy_nested_ner.corpora.statistics import MISALIGNED
    from spacy_nested_ner.evaluation.scores.remarks import of_all

    kept: Counter = Counter()
    lost: Counter = Counter()
    for counts in statistics.values():
        kept.update(counts.labels)
        for (reason, label), number in counts.dropped.items():
            if reason == MISALIGNED:
                lost[label] += number
    examples = [counts.misaligned_example for counts in statistics.values()]
    many = lost.total() > MOST_MISALIGNED * (kept.total() + lost.total())
    if many or any(lost[label] > OF_LABEL * (kept[label] + lost[label]) for label in lost):
        yield (
            f"{lost.total()} entities begin or end inside a token and are left out: "
            f"{of_all(lost, kept)}. The first: {next(filter(None, examples), None)}. No score will "
            "count them, and their words are taught as words without an entity. Are the offsets "
            "right? Where spaCy made the tokens, the language of the text may help (--lang). "
            "--tokens cut keeps all, but a pipeline makes other tokens of raw text, unless its "
            "tokenizer cuts them, too."
        )


def _convert(
    corpus_format: str,
    inputs: List[str],
    output_dir: Path,
    options: "ReadOptions",
    split: "SplitOptions",
    spans_key: str,
    lang: str,
) -> "Dict[str, SplitStatistics]":
    from tqdm import tqdm

    from spacy_nested_ner.corpora.convert import REPORT, convert_corpus
    from spacy_nested_ner.corpora.read import DIVIDING, Source, read_corpus

    sources = [Source.parse(text) for text in inputs]
    if Source.parse(str(output_dir)).split:
        raise ValueError(f"The folder to write is missing: {output_dir} is an input.")
    keep_inputs(output_dir / REPORT, *(source.path for source in sources))
    names = [source.path.name for source in sources]
    report = {
        "format": corpus_format,
        "source": names[0] if len(names) == 1 else names,
        **options.to_dict(),
        "lang": lang,
        "split_seed": split.seed,
        "split_fractions": list(split.fractions),
    }
    nlp = blank_pipeline(lang)
    steps: List[str] = []

    def progress(items: "Iterable[Record]", step: str) -> "Iterable[Record]":
        steps.append(step)
        return tqdm(items, step, unit=" records", mininterval=0.5, disable=None)

    records = read_corpus(corpus_format, sources, options, split, progress)
    statistics = convert_corpus(records, output_dir, nlp, spans_key, report, options)
    if DIVIDING in steps:
        msg.text("Divided by chance. What has the same document id is in the same split.")
    return statistics


def _settings(texts: List[str]) -> Dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    wrong = [text for text, (_, sign, _) in zip(texts, pairs) if not sign]
    if wrong:
        raise ValueError(f"--set takes NAME=VALUE, not {wrong[0]!r}.")
    return {name: value for name, _, value in pairs}


def _split_options(fractions: str, seed: int, redo: bool) -> "SplitOptions":
    from spacy_nested_ner.corpora.read import SplitOptions
    from spacy_nested_ner.corpora.splits import check_fractions, wrong_fractions

    try:
        shares = tuple(float(part) for part in fractions.split(","))
    except ValueError:
        raise ValueError(wrong_fractions(fractions)) from None
    check_fractions(shares)
    return SplitOptions((shares[0], shares[1], shares[2]), seed, redo)


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
    add("  of different ids", [s.texts for s in splits])
    add("sentences", [s.sentences for s in splits])
    add("  without entities", [s.per_sentence[0] for s in splits])
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
    print_table(rows, ("", *statistics))
