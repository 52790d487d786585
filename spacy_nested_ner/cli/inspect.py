"""`nested-ner inspect`: what to know of the data before training."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

import configparser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, Iterator, List, Mapping, Optional, Tuple

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import CodeOpt, SpansKeyOpt, TrainArg
from spacy_nested_ner.cli.output import failing, keep_inputs, print_table, shown, warn_of
from spacy_nested_ner.cli.pipelines import blank_pipeline, not_gold, read_as_one, read_examples

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.training import Example

    from spacy_nested_ner.evaluation.data.limits import Component

DevArg = Annotated[
    Optional[Path], typer.Argument(metavar="[DEV]", help="Development data, .spacy file or folder")
]
ConfigOpt = Annotated[
    Optional[Path],
    typer.Option("--config", "-c", help="Check against the components of this config"),
]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print the report as JSON")]
OutputOpt = Annotated[
    Optional[Path], typer.Option("--output", "-o", help="Write the report to this JSON file")
]
LangOpt = Annotated[str, typer.Option(help="Language of the tokenizer, if no config sets it")]
RareOpt = Annotated[
    int, typer.Option(min=0, help="Labels with fewer entities than this are reported as rare")
]

MANY = 30
RARE = 50  # what `spacy debug data` says of new labels


def inspect_cli(
    train_path: TrainArg,
    dev_path: DevArg = None,
    config_path: ConfigOpt = None,
    as_json: JsonOpt = False,
    output_path: OutputOpt = None,
    spans_key: SpansKeyOpt = "sc",
    lang: LangOpt = "en",
    rare: RareOpt = RARE,
    code: CodeOpt = None,
) -> None:
    """Count labels, lengths and nesting, compare train with dev, and check the data against
    the limits of each system."""
    import srsly

    from spacy_nested_ner.files import writable, write_json

    with failing("Cannot inspect the data."):
        keep_inputs(output_path, *filter(None, (train_path, dev_path, config_path)))
        report = inspect(train_path, dev_path, spans_key, lang, config_path, rare)
        if output_path is not None:
            write_json(output_path, report)
    if as_json:
        typer.echo(srsly.json_dumps(writable(report), indent=2))
        return
    print_report(report)
    if output_path is not None:
        msg.good("The whole report:")
        typer.echo(str(output_path.resolve()))


def inspect(
    train_path: Path,
    dev_path: Optional[Path],
    spans_key: str,
    lang: str,
    config_path: Optional[Path] = None,
    rare: int = RARE,
) -> Dict[str, Any]:
    """The report on one or two files.

    RAISES (ValueError): If a file cannot be read or train has no entities under `spans_key`.
    """
    from spacy_nested_ner.evaluation.data.inspection import (
        inspect_limits,
        inspect_split,
        inspection,
    )
    from spacy_nested_ner.evaluation.scores.entities import no_gold
    from spacy_nested_ner.evaluation.scores.raw_text import compare_tokens

    nlp, components = _pipeline(config_path, lang)
    # Others read the entities of other keys.
    components = [c for c in components if c.settings.get("spans_key") == spans_key] or components
    train = _examples(nlp, train_path)
    if not any(eg.reference.spans.get(spans_key) for eg in train):
        docs = [eg.reference for eg in train]
        raise ValueError(f"{train_path}: {no_gold(docs, spans_key)}")
    warnings = read_as_one(train_path)
    warnings += _keep_sure(train, train_path, spans_key, is_train=True)
    warnings += _other_labels(train, components, spans_key)
    found = inspect_split(train, spans_key)
    rows, found.lost = inspect_limits(train, components, spans_key)
    found.tokens = compare_tokens(nlp, (example.reference for example in train))
    dev = None
    of_dev: List[str] = []
    if dev_path is not None:
        examples = _examples(nlp, dev_path)
        of_dev += read_as_one(dev_path)
        of_dev += _keep_sure(examples, dev_path, spans_key, is_train=False)
        dev = inspect_split(examples, spans_key)
        _, dev.lost = inspect_limits(examples, components, spans_key)
        dev.tokens = compare_tokens(nlp, (example.reference for example in examples))
    report = inspection(found, dev, rows, rare)
    warnings += [*report["warnings"], *of_dev]
    data = {"train": str(train_path), "dev": dev_path and str(dev_path), "spans_key": spans_key}
    return {"data": data, **report, "warnings": warnings}


def _other_labels(
    train: "List[Example]", components: "List[Component]", spans_key: str
) -> Iterator[str]:
    """What to say of labels that trained components have and the data lack, and the reverse."""
    labels = {span.label_ for eg in train for span in eg.reference.spans.get(spans_key, ())}
    for each in components:
        if each.labels is None:
            continue
        if missing := sorted(set(each.labels) - labels):
            yield (
                f"{each.name}: it has labels that the training data lack, and would unlearn them: "
                f"{', '.join(missing)}."
            )
        if new := sorted(labels - set(each.labels)):
            yield (
                f"{each.name}: it lacks labels of the training data: {', '.join(new)}. Add them "
                "with add_label, and save its pipeline."
            )


def _keep_sure(examples: "List[Example]", path: Path, spans_key: str, is_train: bool) -> List[str]:
    """Of docs of `teach`, keep what it is sure of; says so, and what their labels lack.

    Raises ValueError if weights are lost that a training would need.
    """
    from spacy_nested_ner.pipeline.gold import SURE, keep_sure, one_sided_labels

    docs = [eg.reference for eg in examples]
    warnings = not_gold(docs, path, [spans_key])
    if not warnings:
        return []
    for problem in one_sided_labels(docs, spans_key):
        warnings.append(f"{path}: {problem}.")
    try:
        for doc in docs:
            keep_sure(doc, spans_key)
    except ValueError as err:
        if is_train:
            raise ValueError(f"{path}: {err}") from err
        return warnings
    return [f"{warnings[0]} Those with a weight from {SURE} on are counted.", *warnings[1:]]


def _examples(nlp: "Language", path: Path) -> "List[Example]":
    """Of a file, with the sentence boundaries that the pipeline sets in training."""
    examples = read_examples(nlp, path)
    for _ in nlp.pipe(eg.predicted for eg in examples):
        pass
    return examples


def _pipeline(config_path: Optional[Path], lang: str) -> "Tuple[Language, List[Component]]":
    """The tokenizer, with a sentencizer if the config has one that annotates in training, and the
    components to check the data against."""
    from catalogue import RegistryError
    from spacy.util import load_config

    from spacy_nested_ner.evaluation.data.limits import config_components, default_components

    if config_path is None:
        return blank_pipeline(lang), default_components()
    if not config_path.is_file():
        raise ValueError(f"{config_path}: no such file. Expected a config for `spacy train`.")
    try:
        config = load_config(config_path, interpolate=True)
        components = config_components(config)
        frozen = config.get("training", {}).get("frozen_components", [])
        components = [each for each in components if each.name not in frozen] or components
    except (ValueError, configparser.Error) as err:
        raise ValueError(f"{config_path}: {err}") from err
    settings = config.get("nlp", {})
    tokenizer = {"nlp": {"tokenizer": settings["tokenizer"]}} if "tokenizer" in settings else {}
    try:
        nlp = blank_pipeline(settings.get("lang") or lang, tokenizer)
    except (ValueError, RegistryError) as err:
        raise ValueError(f"{config_path}: the tokenizer cannot be created: {err}") from err
    for name in config.get("training", {}).get("annotating_components", []):
        block = dict(config["components"].get(name, {}))
        if block.pop("factory", None) == "sentencizer":  # others are trained
            nlp.add_pipe("sentencizer", name=name, config=block)
    return nlp, components


def print_report(report: Mapping[str, Any]) -> None:
    """Print tables, and what deserves attention at the end."""
    splits = {name: report[name] for name in ("train", "dev") if report[name]}
    _counts(splits)
    _numbers("label", {name: each["labels"] for name, each in splits.items()})
    for title, key in (
        ("words of an entity", "entities_by_length"),
        ("depth", "entities_by_depth"),
        ("entities in a sentence", "sentences_by_entities"),
        ("labels on one span", "same_span_labels"),
        ("lost entities", "lost"),
    ):
        _numbers(title, {name: each[key] for name, each in splits.items()})
    train = splits["train"]
    _lengths({label: train["length_by_label"][label] for label in train["labels"]})
    _limits(report["limits"])
    for name, each in splits.items():
        _tokens(name, each["other_tokens"])
    if report["overlap"]:
        common = report["overlap"]
        msg.text(
            f"{common['sentences']} sentences ({common['sentences_percent']:.1f} %) and "
            f"{common['entities_seen']} entities ({common['entities_seen_percent']:.1f} %, by text "
            "and label) of dev are also in train."
        )
    warn_of(report["warnings"])
    if not report["warnings"]:
        msg.good("No problems found.")


def _counts(splits: Mapping[str, Mapping[str, Any]]) -> None:
    names = (
        "documents",
        "document_ids",
        "sentences",
        "tokens",
        "entities",
        "nested_entities",
        "sentences_with_nested",
        "max_depth",
        "max_length",
        "max_entities_in_sentence",
        "crossing_pairs",
    )
    rows = [
        (name.replace("_", " "), *(str(each[name]) for each in splits.values())) for name in names
    ]
    print_table(rows, ("", *splits))


def _numbers(title: str, columns: Mapping[str, Mapping[str, int]]) -> None:
    keys = list(dict.fromkeys(key for counts in columns.values() for key in counts))
    if not keys:
        return
    if all(key.isdecimal() for key in keys):
        keys.sort(key=int)
    rows = [(key, *(str(counts.get(key, 0)) for counts in columns.values())) for key in keys]
    print_table(_cut(rows), (title, *columns))


def _cut(rows: List[Tuple[str, ...]]) -> List[Tuple[str, ...]]:
    """The first rows, and how many there are more."""
    if len(rows) <= MANY:
        return rows
    return [*rows[:MANY], (f"... {len(rows) - MANY} more", *("" for _ in rows[0][1:]))]


def _lengths(by_label: Mapping[str, Mapping[str, float]]) -> None:
    percentiles = [key for key in next(iter(by_label.values()), {}) if key != "mean"]
    rows = [
        (label, f"{each['mean']:.1f}", *(str(each[key]) for key in percentiles))
        for label, each in by_label.items()
    ]
    header = ("words by label (train)", "mean", *percentiles)
    print_table(_cut(rows), header)


def _tokens(split: str, found: Mapping[str, Any]) -> None:
    """Sentences with other tokens than the pipeline makes, and one of them."""
    if found["differing"]:
        example = found["examples"][0]
        msg.text(f"Tokens of {split}, as the data has them and as the pipeline makes them:")
        typer.echo(shown(f"  {example['data']}\n  {example['pipeline']}"))


def _limits(rows: List[Mapping[str, Any]]) -> None:
    body = []
    for row in rows:
        if row["limit"] is None:
            body.append((row["component"], "none", "", "", ""))
            continue
        fullest = f"{row['fullest_percent']:.0f} %" if "fullest_percent" in row else ""
        other = row.get("entities_of_other_length", "")
        body.append(
            (row["component"], row["limit"], fullest, str(row["entities_over"]), str(other))
        )
    header = ("component", "limit", "fullest sentence", "entities over", "of other length")
    print_table(body, header, of_text=2)
