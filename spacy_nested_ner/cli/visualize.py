"""`nested-ner visualize`: a page with gold and predicted nested spans."""

# No `from __future__ import annotations`: typer reads the annotations at run time.

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Dict, List, NamedTuple, Optional, Tuple

import typer
from wasabi import msg

from spacy_nested_ner.cli.options import CodeOpt, GoldArg, GpuOpt, ModelArg, SpansKeyOpt
from spacy_nested_ner.cli.output import failing, keep_inputs, warn_of
from spacy_nested_ner.cli.pipelines import (
    load_pipeline,
    not_gold,
    raw_examples,
    read_as_one,
    read_gold,
    use_gpu,
)

if TYPE_CHECKING:
    from spacy.language import Language

    from spacy_nested_ner.evaluation.page.page import Comparison


OutputArg = Annotated[Path, typer.Argument(metavar="OUTPUT", help="The HTML page to write")]
LimitOpt = Annotated[int, typer.Option(min=1, help="Maximum number of docs to show")]
SeedOpt = Annotated[int, typer.Option(help="Seed for the random choice of docs")]
ScoresOpt = Annotated[
    Optional[Path],
    typer.Option(
        "--scores", help="JSON of `nested-ner evaluate` or `spacy evaluate`, shown at the top"
    ),
]


class ScoresSource(NamedTuple):
    """What scores are of: pipeline and data, as they were given to `nested-ner evaluate`."""

    model: str
    data: str


def visualize_cli(
    model: ModelArg,
    data_path: GoldArg,
    output_path: OutputArg,
    spans_key: SpansKeyOpt = "sc",
    limit: LimitOpt = 2000,
    seed: SeedOpt = 0,
    scores_path: ScoresOpt = None,
    gpu_id: GpuOpt = -1,
    code: CodeOpt = None,
) -> None:
    """Write one HTML page with gold and predicted nested entities side by side, errors first.

    The page filters by label, kind of error, length and depth. If there are more docs than
    --limit, those with nested gold entities are chosen first.
    """
    from spacy_nested_ner.corpora.docbin import check_data
    from spacy_nested_ner.evaluation.page.page import page_remark
    from spacy_nested_ner.evaluation.scores.remarks import known_labels
    from spacy_nested_ner.files import as_written, written_together

    with failing("Cannot make the page."):
        keep_inputs(output_path, *filter(None, (data_path, scores_path)))
        use_gpu(gpu_id)
        check_data(data_path)
        warn_of(read_as_one(data_path))
        scores, source = read_scores(scores_path, spans_key) if scores_path else (None, None)
        nlp = load_pipeline(model)
        comparisons, source_of_tokens = predict(nlp, data_path, spans_key, limit, seed)
        facts = {
            "data": str(data_path),
            "spans key": spans_key,
            "predicted from": source_of_tokens,
        }
        known = known_labels(nlp, spans_key)
        page = _page(nlp, page_title(nlp, model, data_path), comparisons, facts, scores, known)
        with written_together([output_path]) as drafts:
            drafts[output_path].write_text(as_written(page), encoding="utf8")
    if source is not None and not is_of_page(source, model, data_path):
        where = f"{scores_path} has scores of {source.model} on {source.data}"
        msg.warn(f"{where}. To get the scores for this page, evaluate again.")
    remark = page_remark(comparisons, known)
    if remark is not None:
        msg.warn(remark)
    msg.good(f"Page with gold and predicted entities of {len(comparisons)} sentences:")
    typer.echo(str(output_path.resolve()))  # a line of its own: a long path stays whole


def predict(
    nlp: "Language", data_path: Path, spans_key: str, limit: int, seed: int
) -> "Tuple[List[Comparison], str]":
    """Choose docs, run the pipeline on them, compare; and what it was run on, in words.

    Raises ValueError, with file and remedy, if the data cannot be read, has no gold entities under
    `spans_key`, or the pipeline predicts under other keys only.
    """
    from tqdm import tqdm

    from spacy_nested_ner.evaluation.page.page import choose_examples, compare
    from spacy_nested_ner.evaluation.scores.raw_text import raw_text
    from spacy_nested_ner.evaluation.scores.report import check_text, each_with, no_predictions

    docs = read_gold(nlp, data_path)
    warn_of(not_gold(docs, data_path, [spans_key]))
    gold, _ = raw_examples(nlp, docs, data_path)
    try:
        examples = choose_examples(gold, limit, spans_key, seed)
    except ValueError as err:
        raise ValueError(f"{data_path}: {err}") from err
    made = nlp.pipe(example.predicted for example in examples)
    bar = tqdm(made, total=len(examples), desc="Predicting", unit=" docs", disable=None)
    pairs = list(each_with(examples, bar))  # no bar where the output is no terminal
    for example, doc in pairs:
        check_text(example.reference, doc)
    keys = {key for _, doc in pairs for key in doc.spans}
    if spans_key not in keys:
        raise ValueError(no_predictions(keys, spans_key))
    found = [each for eg, doc in pairs for each in compare(eg.reference, doc, spans_key)]
    unknown = sum(raw_text(example.reference) is None for example in examples)
    if unknown == len(examples):
        return found, "the tokens of the data"
    more = f"; for {unknown} docs the tokens of the data" if unknown else ""
    return found, f"raw text{more}"


def read_scores(
    path: Path, spans_key: str
) -> Tuple[Dict[str, Optional[float]], Optional[ScoresSource]]:
    """Precision, recall and F ("p", "r", "f") from the JSON that `spacy evaluate` writes, or
    `nested-ner evaluate` of one pipeline; the latter says what they are of.

    Raises ValueError, with the path, if there are none.
    """
    import srsly

    if not path.is_file():
        raise ValueError(f"{path}: no such file. Expected the output of `nested-ner evaluate`.")
    try:
        report = srsly.read_json(path)
        scores, source = _scores(report, spans_key), _source(report)
    except (KeyError, IndexError, TypeError) as err:
        problem = "is not what `nested-ner evaluate` or `spacy evaluate` writes. Evaluate again."
        raise ValueError(f"{path} {problem}") from err
    except ValueError as err:
        raise ValueError(f"{path}: {err}") from err
    return scores, source


def _scores(report: Any, spans_key: str) -> Dict[str, Optional[float]]:
    if "pipelines" in report:
        key = report["data"]["spans_key"]
        if len(report["pipelines"]) > 1 or key != spans_key:
            problem = f"has scores of {len(report['pipelines'])} pipelines under {key!r}"
            raise ValueError(f"{problem}. Evaluate this one alone, under {spans_key!r}.")
        scores, prefix = report["pipelines"][0]["strict"]["micro"], ""
    else:
        named = [each for each in ("nested_", f"spans_{spans_key}_") if f"{each}f" in report]
        if not named:
            raise ValueError(f"has neither nested_f nor spans_{spans_key}_f. Evaluate again.")
        scores, prefix = report, named[0]
    values = {part: scores[prefix + part] for part in "prf"}
    for part, value in values.items():
        if value is not None and not 0 <= value <= 1:
            raise ValueError(f"{prefix}{part} is {value}, not a number from 0 to 1.")
    return values


def _source(report: Any) -> Optional[ScoresSource]:
    if "pipelines" not in report:
        return None
    return ScoresSource(report["pipelines"][0]["model"], report["data"]["path"])


def is_of_page(source: ScoresSource, model: str, data_path: Path) -> bool:
    """Whether scores are of the pipeline and the data that the page shows."""
    is_same_model = source.model == model or Path(source.model).resolve() == Path(model).resolve()
    return is_same_model and Path(source.data).resolve() == data_path.resolve()


def page_title(nlp: "Language", model: str, data_path: Path) -> str:
    """The system, the folder it was trained into, and the data: every pipeline is called
    `en_pipeline` unless somebody names it."""
    metas = [nlp.get_pipe_meta(name) for name in nlp.pipe_names]
    systems = [meta.factory for meta in metas if "doc.spans" in meta.assigns]
    path = Path(model)
    folder = "/".join(path.resolve().parts[-2:]) if path.exists() else model
    return f"{' + '.join(systems) or 'pipeline'} ({folder}) on {data_path.name}"


def _page(
    nlp: "Language",
    title: str,
    comparisons: "List[Comparison]",
    facts: Dict[str, str],
    scores: Optional[Dict[str, Optional[float]]],
    known: List[str],
) -> str:
    from spacy_nested_ner.about import __version__
    from spacy_nested_ner.evaluation.page.page import render_page

    facts = {
        "pipeline": f"{nlp.meta['lang']}_{nlp.meta['name']} {nlp.meta['version']}",
        "components": ", ".join(nlp.pipe_names),
        **facts,
        "sentences on this page": str(len(comparisons)),
        "made with": f"spacy_nested_ner {__version__}",
    }
    return render_page(comparisons, title, facts, scores, known)
