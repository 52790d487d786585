"""Does `mrc_ner` find a label that it was never trained on, by its question alone? Trained without
some labels, then asked for them, beside a training with them.

python -m benchmarks.mrc_zero_shot corpus/genia/train.spacy corpus/genia/dev.spacy --transformer DIRECTORY --without DNA --without cell_line --train-limit 400 --steps 200
"""  # noqa: E501

import tempfile
from pathlib import Path
from typing import Annotated, Any, Dict, List, NamedTuple, Set

import torch
import typer
from spacy import util
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from benchmarks.ablation import source_config, trained
from benchmarks.harness import Output, Stopwatch, write_output
from benchmarks.scores import Entity, Found, Scored, best_threshold, found_by
from benchmarks.systems import read
from spacy_nested_ner.systems.mrc.questions import from_template, known_questions

THRESHOLD = 0.5


class Cell(NamedTuple):
    """Scores of one label at the default threshold, and F1 at the best one for these docs."""

    precision: float
    recall: float
    f1: float
    best_f1: float
    best_threshold: float


# By label, then by how it was asked for.
Rows = Dict[str, Dict[str, Cell]]


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
    output: Output = None,
) -> None:
    """Precision, recall and F1 of each held-out label, asked for by its question and by the
    template; what the answers to the questions of the other labels score when they are taken for
    it; and a training with all labels."""
    torch.set_num_threads(1)
    run = {"config": config, "train_limit": train_limit, "transformer": transformer}
    source = source_config({**run, "mixed_precision": mixed_precision})
    source["components"]["ner"]["model"]["unanswered_share"] = unanswered_share
    with tempfile.TemporaryDirectory() as folder, Stopwatch() as first:
        path = Path(folder) / "known.spacy"
        write_without(train, path, set(without), train_limit)
        nlp = trained(source, {}, path, steps)
    questions = {label: question(nlp, label) for label in without}
    rows = not_trained(nlp, read(nlp, dev, dev_docs), questions)
    with Stopwatch() as second:
        nlp = trained(source, {}, train, steps)
    scores = found_by(nlp, read(nlp, dev, dev_docs))
    for label in without:
        rows[label]["trained"] = cell(scores, label, label)
    show(rows, questions)
    f1, threshold = best_threshold(scores)
    cpu = {"without": first.cpu, "with": second.cpu}
    typer.echo(f"\nAll labels, trained: F1 {100 * f1:.1f} at {threshold:.2f}. CPU seconds: {cpu}")
    cells = {label: {k: row._asdict() for k, row in rows[label].items()} for label in rows}
    whole = {"f1": f1, "threshold": threshold}
    result = {"labels": cells, "questions": questions, "all_labels_trained": whole}
    write_output(output, {**result, "cpu_seconds": cpu})


def not_trained(nlp: Language, dev: List[Doc], questions: Dict[str, str]) -> Rows:
    """Scores of labels that the pipeline has not learned, by label and by how it is asked."""
    pipe: Any = nlp.get_pipe("ner")
    others = list(pipe.labels)
    rows: Rows = {label: {} for label in questions}
    for how in ("question", "template"):
        for label, text in questions.items():
            question = text if how == "question" else from_template(label)
            pipe.add_label(label, question=question)
        scores = found_by(nlp, dev)
        for label in questions:
            rows[label][f"not trained, {how}"] = cell(scores, label, label)
    for label in questions:
        rows[label].update({f"answers for {each}": cell(scores, each, label) for each in others})
    return rows


def show(rows: Rows, questions: Dict[str, str]) -> None:
    """A table for each label."""
    for label, table in rows.items():
        typer.echo(f"\n{label}: {questions[label]}\n")
        typer.echo("| | P | R | F1 | F1 at the best threshold |\n|---|---|---|---|---|")
        for name, row in table.items():
            figures = " | ".join(f"{100 * value:.1f}" for value in row[:4])
            typer.echo(f"| {name} | {figures} ({row.best_threshold:.2f}) |")


def write_without(source: Path, target: Path, labels: Set[str], limit: int) -> None:
    """Docs without the entities of these labels."""
    docs = read(util.get_lang_class("xx")(), source, limit)
    for doc in docs:
        doc.spans["sc"] = [span for span in doc.spans["sc"] if span.label_ not in labels]
    DocBin(docs=docs, store_user_data=True).to_disk(target)


def question(nlp: Language, label: str) -> str:
    """The question for a label, from the source that the config names."""
    pipe: Any = nlp.get_pipe("ner")
    given = known_questions(pipe.model)
    if label not in given:
        raise typer.BadParameter(f"the config's question_source has no question for {label}.")
    return given[label]


def cell(scores: Scored, label: str, wanted: str) -> Cell:
    """What was found for one label, taken for the gold of another or the same."""

    def answers(found: Found) -> Found:
        return [[(as_label(e, wanted), s) for e, s in doc if e[2] == label] for doc in found]

    again = scores.again
    gold = [{entity for entity in doc if entity[2] == wanted} for doc in scores.gold]
    of_label = Scored(answers(scores.found), gold, again and (lambda t: answers(again(t))))
    best_f1, threshold = best_threshold(of_label)
    chosen = of_label.at(THRESHOLD)
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
