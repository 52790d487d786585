"""Does `mrc_ner` find a label that it was never trained on, by its question alone? Trained without
some labels, then asked for them, beside a training with them.

python benchmarks/mrc_zero_shot.py corpus/genia/train.spacy corpus/genia/dev.spacy --transformer DIRECTORY --without DNA --without cell_line --train-limit 400 --steps 200
"""  # noqa: E501

import tempfile
import time
from pathlib import Path
from typing import Annotated, Any, Dict, List, NamedTuple, Optional, Set

import torch
import typer
from ablation import Entity, Scored, best_threshold, found_by, kept, trained, use_transformer
from measuring import CONFIGS, provenance, read, write_result
from spacy import util
from spacy.tokens import DocBin

from spacy_nested_ner.systems.mrc.questions import from_template, read_questions

THRESHOLD = 0.5


class Cell(NamedTuple):
    """Scores of one label at the default threshold, and F1 at the best one for these docs."""

    precision: float
    recall: float
    f1: float
    best_f1: float
    best_threshold: float


def main(
    train: Annotated[Path, typer.Argument(help="Training docs, a .spacy file")],
    dev: Annotated[Path, typer.Argument(help="Docs to score, a .spacy file")],
    without: Annotated[List[str], typer.Option(help="Label to hold out; repeat for several")],
    transformer: Annotated[str, typer.Option(help="Directory or hub name")],
    config: Annotated[str, typer.Option(help="Name of a shipped config")] = "mrc_transformer",
    steps: int = 1000,
    train_limit: Annotated[int, typer.Option(help="First training docs; 0: all")] = 0,
    dev_docs: int = 400,
    unanswered_share: float = 1.0,
    mixed_precision: Annotated[bool, typer.Option(help="Of the transformer")] = False,
    output: Annotated[Optional[Path], typer.Option(help="Also write JSON")] = None,
) -> None:
    """Precision, recall and F1 of each held-out label, asked for by its question and by the
    template; what the answers to the questions of the other labels score when they are taken for
    it; and a training with all labels."""
    torch.set_num_threads(1)
    source = util.load_config(CONFIGS / f"{config}.cfg")
    source["corpora"]["train"]["limit"] = train_limit
    use_transformer(source, transformer, mixed_precision=mixed_precision)
    settings = {"unanswered_share": unanswered_share}
    rows: Dict[str, Dict[str, Cell]] = {label: {} for label in without}
    asked = questions_for(source, without)

    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "known.spacy"
        write_without(train, known, set(without), train_limit)
        begin = time.process_time()
        nlp = trained(source, settings, known, steps)
        cpu = {"without": time.process_time() - begin}
    pipe: Any = nlp.get_pipe("ner")
    others = list(pipe.labels)
    for how in ("question", "template"):
        for label in without:
            pipe.add_label(label, asked[label] if how == "question" else from_template(label))
        scores = found_by(nlp, read(nlp, dev, dev_docs))
        for label in without:
            rows[label][f"not trained, {how}"] = cell(scores, label, label)
    for label in without:
        rows[label].update({f"answers for {each}": cell(scores, each, label) for each in others})

    begin = time.process_time()
    nlp = trained(source, settings, train, steps)
    cpu["with"] = time.process_time() - begin
    scores = found_by(nlp, read(nlp, dev, dev_docs))
    for label in without:
        rows[label]["trained"] = cell(scores, label, label)

    for label, table in rows.items():
        typer.echo(f"\n{label}: {asked[label]}\n")
        typer.echo("| | P | R | F1 | F1 at the best threshold |\n|---|---|---|---|---|")
        for name, row in table.items():
            shown = " | ".join(f"{100 * value:.1f}" for value in row[:4])
            typer.echo(f"| {name} | {shown} ({row.best_threshold:.2f}) |")
    f1, threshold = best_threshold(scores)
    typer.echo(f"\nAll labels, trained: F1 {100 * f1:.1f} at {threshold:.2f}. CPU seconds: {cpu}")
    if output is not None:
        cells = {label: {k: row._asdict() for k, row in rows[label].items()} for label in rows}
        whole = {"f1": f1, "threshold": threshold}
        result = {"labels": cells, "questions": asked, "all_labels_trained": whole}
        write_result(output, {**result, "cpu_seconds": cpu, **provenance()})


def write_without(source: Path, target: Path, labels: Set[str], limit: int) -> None:
    """Docs without the entities of these labels."""
    docs = read(util.get_lang_class("xx")(), source, limit)
    for doc in docs:
        doc.spans["sc"] = [span for span in doc.spans["sc"] if span.label_ not in labels]
    DocBin(docs=docs, store_user_data=True).to_disk(target)


def questions_for(config: Dict[str, Any], labels: List[str]) -> Dict[str, str]:
    """The questions for some labels, from the source that the config names."""
    given = read_questions(config["components"]["ner"]["model"]["question_source"])
    for label in labels:
        if label not in given:
            raise typer.BadParameter(f"the config's question_source has no question for {label}.")
    return {label: given[label] for label in labels}


def cell(scores: Scored, asked: str, wanted: str) -> Cell:
    """What was found for one label, taken for the gold of another or the same."""
    found = [[(as_label(e, wanted), s) for e, s in doc if e[2] == asked] for doc in scores[0]]
    gold = [{entity for entity in doc if entity[2] == wanted} for doc in scores[1]]
    best_f1, threshold = best_threshold((found, gold))
    chosen = kept(found, THRESHOLD)
    right = sum(len(a & b) for a, b in zip(chosen, gold))
    precision = right / max(1, sum(map(len, chosen)))
    recall = right / max(1, sum(map(len, gold)))
    f1 = 2 * precision * recall / max(precision + recall, 1e-9)
    return Cell(precision, recall, f1, best_f1, threshold)


def as_label(entity: Entity, label: str) -> Entity:
    """The same words under another label."""
    return entity[0], entity[1], label


if __name__ == "__main__":
    typer.run(main)
