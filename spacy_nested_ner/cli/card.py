"""`nested-ner card`: a model card of the scores, for `spacy package`."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

import shutil
from pathlib import Path
from typing import Annotated, Any, Dict, Iterable, Optional

import typer
from wasabi import msg

from spacy_nested_ner.cli.output import check_replaced, failing

PipelineArg = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a pipeline")]
MetricsArg = Annotated[
    Path, typer.Argument(metavar="METRICS", help="Its scores, as written by `evaluate --output`")
]
AboutOpt = Annotated[
    Optional[Path],
    typer.Option(
        help="JSON file with any of description, author, email, url, license, sources, notes"
    ),
]
OutputOpt = Annotated[
    Optional[Path],
    typer.Option(
        "--output", "-o", help="Folder for a copy of the pipeline with the card; MODEL stays as is"
    ),
]


def card_cli(
    model: PipelineArg,
    metrics: MetricsArg,
    about: AboutOpt = None,
    output: OutputOpt = None,
) -> None:
    """Write scores by label, depth and length, calibration and speed into the meta.json of a
    pipeline: `spacy package` makes the README from it."""
    from spacy_nested_ner.evaluation.scores.card import check_about, described_meta, is_of
    from spacy_nested_ner.files import read_object, write_json, written_folder

    path = model / "meta.json"
    with failing("Cannot write a model card."):
        if not path.is_file():
            raise ValueError(f"{model} is not the folder of a pipeline: it has no meta.json.")
        if output is not None and model.resolve() in output.resolve().parents:
            raise ValueError(f"{output} is inside {model}. Give a folder outside it.")
        check_replaced(output, "meta.json", model, metrics, about)
        report, facts = read_object(metrics), read_object(about) if about else {}
        check_about(facts, str(about))
        meta = read_object(path)
        try:
            meta = described_meta(meta, report, facts)
            known = is_of(report, model, meta)
            thresholds = report["pipelines"][0]["thresholds"]
            scored = {each["component"]: each["threshold"] for each in thresholds}
        except (AttributeError, KeyError, IndexError, TypeError) as err:
            problem = "is not what `nested-ner evaluate --output` writes. Evaluate again."
            raise ValueError(f"{metrics} {problem}") from err
        except ValueError as err:
            raise ValueError(f"{metrics}: {err}") from err
        fits = meta.get("thresholds", {})
        try:
            own = _thresholds(model, {*fits, *scored})
            for name, fit in [*fits.items()]:
                if own.get(name, fit["threshold"]) != fit["threshold"]:
                    del fits[name]
        except (AttributeError, KeyError, TypeError) as err:
            raise ValueError(f"{path}: its thresholds are damaged. ({err!r})") from err
        others = [name for name in scored if own.get(name, scored[name]) != scored[name]]
        if output is None:
            write_json(path, meta)
        else:
            with written_folder(output, marker="meta.json") as draft:
                shutil.copytree(model, draft, dirs_exist_ok=True)
                write_json(draft / "meta.json", meta)
    if not known:
        name = report["pipelines"][0]["model"]
        msg.warn(f"{metrics} has scores of {name}. If that is not {model}, evaluate {model}.")
    if others:
        msg.warn(
            f"{metrics} has scores at another threshold than that of {', '.join(others)} in "
            f"{model}. Evaluate again."
        )
    msg.good("Model card in")
    typer.echo(str(((output or model) / "meta.json").resolve()))


def _thresholds(model: Path, names: Iterable[str]) -> Dict[str, Any]:
    """Those of the components that have one."""
    from spacy_nested_ner.files import read_object

    paths = {name: model / name / "cfg" for name in names}
    settings = {name: read_object(path) for name, path in paths.items() if path.is_file()}
    return {name: cfg["threshold"] for name, cfg in settings.items() if "threshold" in cfg}
