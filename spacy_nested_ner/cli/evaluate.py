"""`nested-ner evaluate`: the numbers of one pipeline, or of several beside each other."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from itertools import chain
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
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

from spacy_nested_ner.cli.options import CodeOpt, DataArg, GpuOpt, SpansKeyOpt
from spacy_nested_ner.cli.output import failing, keep_inputs, print_table, shown, warn_of
from spacy_nested_ner.cli.pipelines import (
    blank_pipeline,
    check_arguments,
    is_data,
    load_pipeline,
    not_gold,
    read_as_one,
    read_gold,
    short_names,
    use_gpu,
)

if TYPE_CHECKING:
    from spacy.tokens import Doc

    from spacy_nested_ner.evaluation.scores.report import Run

ScoredArg = Annotated[
    Optional[List[str]],
    typer.Argument(
        metavar="MODEL",
        help="Folders or package names of pipelines, or .spacy files of predictions",
        show_default=False,
    ),
]
OutputOpt = Annotated[
    Optional[Path], typer.Option("--output", "-o", help="Write all numbers to this JSON file")
]
GoldTokensOpt = Annotated[
    bool,
    typer.Option("--gold-tokens", help="Score on gold tokens and sentences only, as papers do"),
]
VerboseOpt = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Also print scores by length and depth, calibration and more"
    ),
]
EntsOpt = Annotated[
    bool,
    typer.Option("--ents", help="Use doc.ents of docs that have no doc.spans under the spans key"),
]
SamplesOpt = Annotated[
    int,
    typer.Option(
        min=0, max=1_000_000, help="Bootstrap samples for the confidence intervals, 0 for none"
    ),
]
SeedOpt = Annotated[int, typer.Option(help="Seed of the bootstrap")]
BatchOpt = Annotated[
    Optional[int], typer.Option(min=1, help="Docs per batch (default: that of the pipeline)")
]

SCORES = (
    ("strict micro", "strict", "micro"),
    ("strict macro", "strict", "macro"),
    ("localisation", "localisation"),
    ("classification", "classification"),
    ("partial match", "partial"),
    ("type only", "type"),
)
GROUPS = (
    ("words", "by_length"),
    ("depth", "by_depth"),
    ("nesting", "by_nesting"),
    ("entities in sentence", "by_entities_in_sentence"),
)
MOST_LABELS = 20  # of a summary


def evaluate_cli(
    models: ScoredArg = None,
    data_path: DataArg = None,
    output_path: OutputOpt = None,
    spans_key: SpansKeyOpt = "sc",
    ents: EntsOpt = False,
    samples: SamplesOpt = 1000,
    seed: SeedOpt = 0,
    batch_size: BatchOpt = None,
    gold_tokens: GoldTokensOpt = False,
    verbose: VerboseOpt = False,
    gpu_id: GpuOpt = -1,
    code: CodeOpt = None,
) -> None:
    """Score pipelines on the raw text of gold data: strict, by boundaries, by label, length and
    depth, with calibration, speed and confidence intervals.

    If the tokens or sentences of the data differ from those of the pipeline, the scores with gold
    tokens are shown, too. Several pipelines are compared by a paired bootstrap. Predictions that
    are there already, or the entities of another annotator, are paired with the gold docs by text.
    """
    from spacy_nested_ner.files import check_file, write_json

    with failing("Cannot evaluate."):
        data_path = check_arguments(models, data_path, predictions=True)
        given = [path for path in map(Path, models or []) if is_data(path)]
        if gold_tokens and given:
            raise ValueError(
                f"--gold-tokens applies to pipelines, and {given[0]} holds predictions, which keep "
                "their tokens. Leave it out."
            )
        if output_path is not None:
            check_file(output_path)
        keep_inputs(output_path, data_path, *given)
        use_gpu(gpu_id)
        report = evaluate(
            models or [], data_path, spans_key, ents, samples, seed, batch_size, gold_tokens
        )
    # What cannot be written is shown, what cannot be shown is written.
    problem: Optional[OSError] = None
    if output_path is not None:
        try:
            write_json(output_path, report)
        except OSError as err:
            problem = err
    print_report(report, verbose)
    if problem is not None:
        msg.fail("Cannot write the report.", str(problem), exits=1)
    if output_path is not None:
        msg.good("All numbers:")
        typer.echo(str(output_path.resolve()))


def evaluate(
    models: Sequence[str],
    data_path: Path,
    spans_key: str = "sc",
    ents: bool = False,
    samples: int = 1000,
    seed: int = 0,
    batch_size: Optional[int] = None,
    gold_tokens: bool = False,
) -> Dict[str, Any]:
    """Run the pipelines one after the other and put their numbers together.

    RAISES (ValueError): That names the pipeline or the file, if one of them cannot be read or used.
    """
    from spacy_nested_ner.about import __version__
    from spacy_nested_ner.corpora.statistics import misaligned_labels
    from spacy_nested_ner.evaluation.scores.evaluate import evaluate_pipeline, evaluate_predictions
    from spacy_nested_ner.evaluation.scores.remarks import (
        known_labels,
        left_out,
        remarks,
        sets_sentences,
    )
    from spacy_nested_ner.evaluation.scores.report import compare_runs, data_facts

    results: Dict[int, Tuple[Run, Dict[str, Any], List[str]]] = {}
    warnings = read_as_one(data_path)
    names = short_names(models)
    given = [is_data(Path(model)) for model in models]
    # Predictions first: what is wrong with them is told before a pipeline has run.
    for i in sorted(range(len(models)), key=lambda i: not given[i]):
        nlp = blank_pipeline("xx") if given[i] else load_pipeline(models[i])
        docs = read_gold(nlp, data_path)
        if not results:
            warnings += not_gold(docs, data_path, [spans_key])
            misaligned = misaligned_labels(docs)
        try:
            if given[i]:
                predicted = read_gold(nlp, Path(models[i]))
                found = evaluate_predictions(predicted, docs, spans_key, ents)
            else:
                found = evaluate_pipeline(
                    nlp, docs, spans_key, ents, batch_size, gold_tokens, _progress
                )
        except ValueError as err:
            raise ValueError(f"{models[i]} on {data_path}: {err}") from err
        if found.missing and len(models) > 1:
            raise ValueError(
                f"{models[i]} has no predictions for {found.missing} docs of {data_path}, so that "
                "it cannot be compared with others. Give it alone, or predict on all docs."
            )
        about = f"{names[i]}: " if len(models) > 1 else ""
        parts = list(nlp.pipe_names)
        numbers = {"name": names[i], "model": models[i], "components": parts, **found.to_dict()}
        known = [] if ents else known_labels(nlp, spans_key)
        more = remarks(numbers, spans_key, known, sets_sentences(nlp))
        results[i] = found.run, numbers, [about + remark for remark in more]
        del nlp, docs  # one pipeline at a time is in memory
    runs, pipelines, remarked = zip(*(results[i] for i in range(len(models))))
    warnings += chain(*remarked)
    data = {"path": str(data_path), "spans_key": spans_key, **data_facts(runs[0])}
    data["misaligned"] = dict(misaligned)
    gold = {label: each["gold"] for label, each in pipelines[0]["strict"]["by_label"].items()}
    if missing := left_out(misaligned, gold):
        warnings.append(missing)
    return {
        "data": data,
        "pipelines": list(pipelines),
        "bootstrap": compare_runs(runs, samples, seed),
        "warnings": warnings,
        "spacy_nested_ner": __version__,
    }


def _progress(docs: "Iterator[Doc]", total: int, what: str) -> "Iterable[Doc]":
    """A bar on stderr, if that is a terminal."""
    from tqdm import tqdm

    return tqdm(docs, total=total, desc=f"From {what}", unit=" docs", leave=False, disable=None)


def print_report(report: Dict[str, Any], verbose: bool = False) -> None:
    """Print the scores in percent. One pipeline: P, R and F; several: F of each.

    verbose: all tables; without, the scores, those by label, and thresholds.
    """
    pipelines = report["pipelines"]
    facts = report["data"]
    what = (
        f"{facts['path']} ({facts['spans_key']}): {facts['documents']} docs, {facts['sentences']} "
        f"sentences, {facts['words']} words, {facts['entities']} gold entities"
    )
    typer.echo(shown(what))
    if facts["documents_without_annotation"]:
        msg.warn(f"{facts['documents_without_annotation']} docs without annotation are left out.")
    msg.text(_scored_on(pipelines))
    names = [pipeline["name"] for pipeline in pipelines]
    _table("score", [SCORES[0], *_tokens_rows(pipelines), *SCORES[1:]], names, pipelines)
    labels = _group_rows("by_label", pipelines)
    listed = labels if verbose else _most_frequent(labels, pipelines)
    _table("label", listed, names, pipelines)
    if len(listed) < len(labels):
        msg.text(f"{len(labels) - len(listed)} rarer labels are shown with --verbose.")
    if verbose:
        for title, group in GROUPS:
            _table(title, _group_rows(group, pipelines), names, pipelines)
        _print_errors(names, pipelines)
        _print_calibration(names, pipelines)
    _print_thresholds(names, pipelines)
    if len(names) == 1 and not verbose:
        if line := _last_line(pipelines[0], report["bootstrap"]):
            msg.text(line)
    else:
        _print_other(names, pipelines, verbose)
        if report["bootstrap"] is not None:
            _print_bootstrap(names, report["bootstrap"])
    warn_of(report["warnings"])


def _scored_on(pipelines: Sequence[Dict[str, Any]]) -> str:
    """On which tokens and sentences the scores are."""
    first = next((each for each in pipelines if not _is_given(each)), None)
    if first is None:
        return "Predictions are scored as they are."
    if first["raw_text"] is None:
        return "Scored on gold tokens and sentences."
    if first["documents_without_text"]:
        return (
            f"Scored on gold tokens and sentences: for {first['documents_without_text']} docs only "
            "the words are known, not the text."
        )
    if not any(_differs(pipeline) for pipeline in pipelines):
        cut = max(pipeline["documents_cut_into_sentences"] for pipeline in pipelines)
        if cut:
            return (
                "Scored on raw text: the pipeline makes the same tokens as the data. Docs that "
                f"have no sentence boundaries in the data, but in the pipeline: {cut}."
            )
        return "Scored on raw text: the pipeline makes the same tokens and sentences as the data."
    return "Scored on raw text: tokens and sentences are the pipeline's own."


def _is_given(pipeline: Dict[str, Any]) -> bool:
    """Whether it is no pipeline, but predictions that were there already."""
    return bool(pipeline["scored_on"] == "predictions")


def _differs(pipeline: Dict[str, Any]) -> bool:
    return bool(
        pipeline["documents_with_other_tokens"] or pipeline["documents_with_other_sentences"]
    )


def _tokens_rows(pipelines: Sequence[Dict[str, Any]]) -> List[Tuple[str, ...]]:
    """The other of the two ways to score, where docs differ."""
    if not any(_differs(pipeline) for pipeline in pipelines):
        return []
    if any(each["documents_without_text"] for each in pipelines):
        return [("strict micro, words joined by spaces", "raw_text")]
    return [("strict micro, gold tokens", "gold_tokens")]


def _group_rows(group: str, pipelines: Sequence[Dict[str, Any]]) -> List[Tuple[str, ...]]:
    found = [pipeline["strict"][group] for pipeline in pipelines]
    keys = list(dict.fromkeys(key for groups in found for key in groups))
    return [(key, "strict", group, key) for key in sorted(keys, key=_group_order)]


def _most_frequent(
    labels: List[Tuple[str, ...]], pipelines: Sequence[Dict[str, Any]]
) -> List[Tuple[str, ...]]:
    """Rows of the labels with the most gold entities, in their order."""

    def count(row: Tuple[str, ...]) -> int:
        found = (pipeline["strict"]["by_label"].get(row[0]) for pipeline in pipelines)
        return max((scores["gold"] for scores in found if scores), default=0)

    most = sorted(labels, key=count, reverse=True)[:MOST_LABELS]
    return [row for row in labels if row in most]


def _group_order(key: str) -> Tuple[int, str]:
    digits = key.split("-")[0].rstrip("+")
    return (int(digits), "") if digits.isdecimal() else (-1, key)


def _table(
    title: str,
    rows: Sequence[Tuple[str, ...]],
    names: Sequence[str],
    pipelines: Sequence[Dict[str, Any]],
) -> None:
    """rows: name, then the keys under which each pipeline has the scores."""
    columns = ["P", "R", "F"] if len(names) == 1 else list(names)
    body = []
    for name, *keys in rows:
        found = [_dig(pipeline, keys) for pipeline in pipelines]
        if len(names) == 1:
            cells = [_percent(found[0].get(part)) for part in "prf"]
            cells.append(str(found[0].get("predicted", "")))
        else:
            cells = [_percent(scores.get("f")) for scores in found]
        gold = max((scores["gold"] for scores in found if "gold" in scores), default="")
        body.append((name, *cells, str(gold)))
    if len(names) == 1:
        columns.append("predicted")
    else:
        title = f"F by {title}"
    header = (title, *columns, "gold")
    print_table(body, header)


def _dig(values: Dict[str, Any], keys: Sequence[str]) -> Dict[str, Any]:
    for key in keys:
        values = values.get(key) or {}
    return values


def _print_errors(names: Sequence[str], pipelines: Sequence[Dict[str, Any]]) -> None:
    """Kinds of errors; of one pipeline also which labels it takes for which."""
    found = [pipeline["errors"] for pipeline in pipelines]
    if len(names) == 1:
        columns = {side: found[0][side] for side in ("predicted", "gold")}
        title = "kind"
    else:
        columns = {name: each["predicted"] for name, each in zip(names, found)}
        title = "predictions by kind"
    kinds = dict.fromkeys(kind for each in columns.values() for kind in each)
    rows = [(kind, *(str(each.get(kind, "")) for each in columns.values())) for kind in kinds]
    print_table(rows, (title, *columns))
    pairs = found[0]["confusions"] if len(names) == 1 else []
    if pairs:
        taken = [(each["gold"], each["predicted"], str(each["count"])) for each in pairs]
        header = ("gold label", "predicted instead", "spans")
        print_table(taken[:MOST_LABELS], header, of_text=2)
    if len(pairs) > MOST_LABELS:
        msg.text(f"{len(pairs) - MOST_LABELS} rarer pairs of labels are in the file of --output.")


def _print_calibration(names: Sequence[str], pipelines: Sequence[Dict[str, Any]]) -> None:
    known = [(n, p) for n, p in zip(names, pipelines) if p["calibration"] is not None]
    if not known:
        return
    title = ["reliability" if len(names) == 1 else f"reliability of {name}" for name, _ in known]
    for heading, (_, pipeline) in zip(title, known):
        bins = [
            (
                f"{each['low']:.1f}-{each['high']:.1f}",
                str(each["predicted"]),
                _percent(each["mean_score"]),
                _percent(each["precision"]),
            )
            for each in pipeline["calibration"]["bins"]
            if each["predicted"]
        ]
        header = (heading, "predicted", "mean score", "precision")
        print_table(bins, header)
    coverages = [each["coverage"] for each in known[0][1]["precision_at_coverage"]]
    rows = [
        (
            f"{coverage:.0%}",
            *(_percent(p["precision_at_coverage"][i]["precision"]) for _, p in known),
        )
        for i, coverage in enumerate(coverages)
    ]
    columns = ("precision at coverage", *(name for name, _ in known))
    print_table(rows, columns)


def _print_thresholds(names: Sequence[str], pipelines: Sequence[Dict[str, Any]]) -> None:
    rows = []
    for name, pipeline in zip(names, pipelines):
        for each in pipeline["thresholds"]:
            component = each["component"] if len(names) == 1 else f"{name}: {each['component']}"
            own = "none" if each["threshold"] is None else f"{each['threshold']:.9g}"
            best = each["best"] or {"threshold": None, "f": None}
            there = "-" if best["threshold"] is None else f"{best['threshold']:.9g}"
            rows.append((component, own, _percent(each["f"]), there, _percent(best["f"])))
    if rows:
        header = ("component", "threshold", "F", "best on this data", "its F")
        print_table(rows, header)
    if any(each["best"] for pipeline in pipelines for each in pipeline["thresholds"]):
        msg.text(
            "The best threshold is tuned on this data, so its F is too optimistic for other data."
        )


def _print_other(names: Sequence[str], pipelines: Sequence[Dict[str, Any]], verbose: bool) -> None:
    rows = [
        (
            "expected calibration error",
            *(_percent((p["calibration"] or {}).get("expected_error")) for p in pipelines),
        ),
        (
            "predictions off token boundaries",
            *(str(p["misaligned_predictions"]) for p in pipelines),
        ),
        ("words per second", *(_speed(p) for p in pipelines)),
    ]
    rows = rows if verbose else rows[2:]
    if all(map(_is_given, pipelines)):
        rows = rows[:-1]
    if rows:
        print_table(rows, ("", *names))


def _last_line(pipeline: Dict[str, Any], drawn: Optional[Dict[str, Any]]) -> str:
    parts = []
    if drawn is not None:
        interval = _interval(drawn["intervals"][0]["f"])
        parts.append(f"{drawn['level']:.0%} interval of F over {_drawn_from(drawn)}: {interval}")
    if not _is_given(pipeline):
        parts.append(f"{_speed(pipeline)} words per second")
    return f"{'; '.join(parts)}." if parts else ""


def _speed(pipeline: Dict[str, Any]) -> str:
    if _is_given(pipeline):
        return "-"
    return f"{pipeline['speed']['words_per_second'] or 0:,.0f}"


def _drawn_from(drawn: Dict[str, Any]) -> str:
    ((what, number),) = drawn["drawn"].items()
    return f"{number} {what}"


def _print_bootstrap(names: Sequence[str], drawn: Dict[str, Any]) -> None:
    level = f"{drawn['level']:.0%} interval"
    msg.text(f"Intervals over {_drawn_from(drawn)}:")
    rows = [
        (name, *(_interval(each[measure]) for measure in ("f", "macro_f")))
        for name, each in zip(names, drawn["intervals"])
    ]
    print_table(rows, (level, "micro F", "macro F"))
    rows = [
        (
            f"{names[each['to']]} - {names[each['from']]}",
            f"{100 * each['f']['difference']:+.2f}",
            _interval(each["f"]["interval"], sign="+"),
            f"{each['f']['better']:.1%}",
        )
        for each in drawn["differences"]
    ]
    if rows:
        header = ("difference of micro F", "", level, "better in")
        print_table(rows, header)


def _interval(edges: Sequence[float], sign: str = "") -> str:
    low, high = (format(100 * edge, f"{sign}.2f") for edge in edges)
    return f"{low} to {high}"


def _percent(value: Optional[float]) -> str:
    return "-" if value is None else f"{100 * value:.2f}"
