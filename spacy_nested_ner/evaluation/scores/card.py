"""The model card of a pipeline, from what `nested-ner evaluate` has measured.

`spacy package` makes a README of `meta.json`: description, licence, sources, scores, and the notes,
which hold what is told here.
"""

from __future__ import annotations

import filecmp
from html import escape
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from spacy.util import get_package_path, is_package
from wasabi import MarkdownRenderer

from spacy_nested_ner.evaluation.scores.metrics import PRF
from spacy_nested_ner.evaluation.scores.remarks import some
from spacy_nested_ner.files import as_written

# What a file about the data may set in meta.json; its notes come after the scores.
FIELDS = ("description", "author", "email", "url", "license", "sources", "notes")
RANGES = ((1, 2), (3, 5), (6, 9), (10, 19))
GROUPS = (
    ("By label", "label", "by_label"),
    ("By depth", "depth (1: outermost)", "by_depth"),
    ("By length", "words", "by_length"),
)


def described_meta(
    meta: Mapping[str, Any], report: Mapping[str, Any], about: Mapping[str, Any]
) -> Dict[str, Any]:
    """`meta.json` with a model card.

    report: of `nested-ner evaluate` on one pipeline. about: see `FIELDS`.

    Raises ValueError for a report on several pipelines, or on predictions.
    """
    if len(report["pipelines"]) != 1:
        raise ValueError(
            f"has scores of {len(report['pipelines'])} pipelines. Evaluate this one alone."
        )
    (scores,) = report["pipelines"]
    if scores["scored_on"] == "predictions":
        raise ValueError("has scores of predictions, not of a pipeline. Evaluate the pipeline.")
    key, found = report["data"]["spans_key"], scores["strict"]["micro"]
    performance = {f"spans_{key}_{part}": found[part] for part in "fpr"}
    per_label = scores["strict"]["by_label"]
    performance[f"spans_{key}_per_type"] = {
        label: {part: each[part] for part in "prf"} for label, each in per_label.items()
    }
    performance["speed"] = scores["speed"]["words_per_second"]
    notes = [scores_in_words(report, scores), about.get("notes", "")]
    return {
        **meta,
        **about,
        "performance": performance,
        "notes": "\n\n".join(part for part in notes if part),
    }


def is_of(report: Mapping[str, Any], model: Path, meta: Mapping[str, Any]) -> bool:
    """Whether a report names a pipeline, by its folder or as a package.

    Raises ValueError if it does not, and is on labels of which the pipeline has none.
    """
    (scores,) = report["pipelines"]
    if _is_packaged(model, scores["model"]):
        return True
    if as_written(str(Path(scores["model"]).resolve())) == as_written(str(model.resolve())):
        return True
    labels = {label for each in meta.get("labels", {}).values() for label in each}
    scored = scores["strict"]["by_label"]
    if labels and labels.isdisjoint(scored):
        raise ValueError(
            f"has scores of {scores['model']} ({some(sorted(scored))}), but {model} has other "
            f"labels. Run `nested-ner evaluate` on {model}."
        )
    return False


def _is_packaged(model: Path, package: str) -> bool:
    """Whether a package is installed that was made of this folder: all that it holds of a pipeline
    is there and the same, but for what tells its name, version and card."""
    if not is_package(package):
        return False
    for config in get_package_path(package).glob("*/config.cfg"):
        files = [
            str(path.relative_to(config.parent))
            for path in config.parent.rglob("*")
            if path.is_file() and path.name not in ("meta.json", "README.md")
        ]
        same, _, _ = filecmp.cmpfiles(model, config.parent, files, shallow=False)
        return len(same) == len(files)
    return False


def check_about(about: Mapping[str, Any], name: str) -> None:
    """Raise ValueError, with the name of the file, for what `FIELDS` does not have, and for what is
    no text or, of the sources, no list."""
    unknown = [field for field in about if field not in FIELDS]
    if unknown:
        raise ValueError(f"{name}: unknown field '{unknown[0]}'. Known: {', '.join(FIELDS)}.")
    for field, value in about.items():
        kind, what = (list, "a list") if field == "sources" else (str, "a text")
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{name}: {field} must be {what}, not {value!r}.")


def scores_in_words(report: Mapping[str, Any], scores: Mapping[str, Any]) -> str:
    """Markdown with all scores of one pipeline."""
    md = MarkdownRenderer()
    data, strict = report["data"], scores["strict"]
    md.add(md.title(3, "Test scores"))
    md.add(
        f"On {scores['scored_on']}: {data['documents']} texts, {data['sentences']} sentences, "
        f"{data['words']} words, {data['entities']} entities. An entity is right if its boundaries "
        "and its label are."
    )
    rows = [
        ("all labels together", strict["micro"]),
        ("mean over labels", strict["macro"]),
        ("boundaries alone", scores["localisation"]),
    ]
    md.add(_table(md, "", rows))
    drawn = report["bootstrap"]
    if drawn is not None:
        ((what, number),) = drawn["drawn"].items()
        interval = " to ".join(map(_percent, drawn["intervals"][0]["f"]))
        md.add(f"{drawn['level']:.0%} interval of F over {number} {what}: {interval}.")
    groups = {**strict, "by_length": in_steps(strict["by_length"])}
    for title, column, group in GROUPS:
        if groups[group]:
            md.add(md.title(4, title))
            md.add(_table(md, column, list(groups[group].items())))
    calibration = scores["calibration"]
    if calibration is not None:
        md.add(md.title(4, "Calibration"))
        md.add(_reliability(md, calibration))
    md.add(md.title(4, "Speed"))
    md.add(
        f"{scores['speed']['words_per_second']:,.0f} words per second on the machine of the "
        "measurement, in one process."
    )
    return md.text


def in_steps(by_length: Mapping[str, Mapping[str, Any]]) -> Dict[str, Dict[str, Any]]:
    """Scores by length, as `evaluate` has them: those of single lengths joined to a few ranges."""
    found: Dict[str, List[Mapping[str, Any]]] = {}
    for length, scores in by_length.items():
        words = int(length.partition("-")[0].rstrip("+"))
        name = next((f"{a}-{b}" for a, b in RANGES if words <= b), length)
        found.setdefault(name, []).append(scores)
    return {name: _joined(each) for name, each in found.items()}


def _joined(groups: List[Mapping[str, Any]]) -> Dict[str, Any]:
    counts = (sum(each[part] for each in groups) for part in ("right", "predicted", "gold"))
    return PRF(*counts).to_dict()


def _reliability(md: MarkdownRenderer, calibration: Mapping[str, Any]) -> str:
    rows = [
        (
            f"{each['low']:.1f} to {each['high']:.1f}",
            str(each["predicted"]),
            _percent(each["mean_score"]),
            _percent(each["precision"]),
        )
        for each in calibration["bins"]
        if each["predicted"]
    ]
    header = ["score", "predicted", "mean score", "right, %"]
    table = md.table(rows, header, aligns=("l", "r", "r", "r"))
    return f"{table}\n\nExpected calibration error: {_percent(calibration['expected_error'])}."


def _table(md: MarkdownRenderer, column: str, rows: Sequence[Any]) -> str:
    body: List[List[str]] = [
        [
            _cell(name),
            *(_percent(each[part]) for part in "prf"),
            str(each.get("gold", "")),
        ]
        for name, each in rows
    ]
    return md.table(body, [column, "P", "R", "F", "gold"], aligns=("l", "r", "r", "r", "r"))


def _cell(name: str) -> str:
    """A name that stays in its cell, and is no HTML."""
    return " ".join(escape(name, quote=False).split()).replace("|", "\\|")


def _percent(value: Optional[float]) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
