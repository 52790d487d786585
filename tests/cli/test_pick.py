"""`nested-ner pick`."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any, Dict, List

import pytest
import spacy
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.tokens import Doc, DocBin
from typer.testing import CliRunner

from spacy_nested_ner import to_dicts
from spacy_nested_ner.cli import nested_ner_cli
from spacy_nested_ner.cli.pick import Tool
from spacy_nested_ner.corpora.registry import task_writers
from spacy_nested_ner.evaluation.data.picking import candidate
from spacy_nested_ner.evaluation.data.picking import pick as choose
from spacy_nested_ner.scale import inputs
from spacy_nested_ner.scale.pipelines import LoadedPipeline
from tests.cli.test_predict import all_of, save_rules
from tests.conftest import SENTENCES, make_pipeline, train

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "annotation_loop.md"
TEXTS = [text for text, _ in SENTENCES]
NEW = [
    "The US embassy in Paris",
    "He left Bank of Oslo in Washington",
    "IL-2 surface receptor of T cells",
    "the mayor of the University of New York",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A pipeline that is sure of the ten sentences. Not to be changed by a test."""
    path = tmp_path_factory.mktemp("pick") / "model-best"
    train(make_pipeline("locate_and_label_ner"), 120).to_disk(path)
    return path


def run(*args: Any, code: int = 0):
    result = CliRunner().invoke(nested_ner_cli, [*map(str, args)])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def pick(*args: Any, code: int = 0):
    return run("pick", *args, code=code)


def write(path: Path, *texts: str) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf8")
    return path


def lines(path: Path) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf8").split("\n")[:-1]]


def test_what_the_pipeline_does_not_know_comes_first(model, tmp_path):
    """By all that it finds down to its lowest threshold."""
    nlp = spacy.load(model)
    nlp.get_pipe("ner").cfg["threshold"] = 0.05  # type: ignore[attr-defined]
    found = to_dicts(nlp.pipe([*TEXTS, *NEW]))
    scored = [[(s["label"], s["text"], s["score"]) for s in each["spans"]] for each in found]
    expected = [
        each.text
        for each in choose(
            (candidate(each["text"], spans, 0.5) for each, spans in zip(found, scored)), 4
        )
    ]
    texts = write(tmp_path / "in.jsonl", *TEXTS, *NEW)
    output = tmp_path / "new" / "out.jsonl"
    printed = all_of(pick(model, texts, output, "--n", 4, "--format", "doccano"))
    assert [each["text"] for each in lines(output)] == expected
    assert {*expected} & {*NEW} and "nothing to see here ." not in expected
    assert "4 of 14 texts, with" in printed and "Labels: CELL,DNA,GPE,ORG,PER,PROT" in printed
    assert str(output.resolve()) in printed
    once = output.read_bytes()
    pick(model, texts, output, "-n", 4, "--format", "doccano")
    assert output.read_bytes() == once


@pytest.mark.parametrize("tool, name", [("prodigy", "a.jsonl"), ("label-studio", "a.json")])
def test_the_entities_of_the_pipeline_are_there(model, tmp_path, tool, name):
    """Those at its own threshold with their scores, which `convert` reads."""
    nlp = spacy.load(model)
    expected = {each["text"]: each["spans"] for each in to_dicts(nlp.pipe(TEXTS))}
    assert sum(map(len, expected.values())) > 15
    texts, output = write(tmp_path / "in.jsonl", *TEXTS), tmp_path / name
    pick(model, texts, output, "--format", tool, "--n", 10)
    if tool == "prodigy":
        tasks = [{**each, "answer": "accept"} for each in lines(output)]
        found = [(each["text"], each["spans"]) for each in tasks]
        output.write_text("\n".join(map(json.dumps, tasks)), "utf8")
    else:
        tasks = json.loads(output.read_text("utf8"))
        regions = [(each["data"]["text"], each["predictions"][0]["result"]) for each in tasks]
        found = [
            (
                text,
                [{**r["value"], "label": r["value"]["labels"][0], "score": r["score"]} for r in rs],
            )
            for text, rs in regions
        ]
        for each in tasks:
            each["annotations"] = [{"id": 1, **each.pop("predictions")[0]}]
        output.write_text(json.dumps(tasks), "utf8")
    assert {text for text, _ in found} == set(TEXTS)
    for text, spans in found:
        assert len(spans) == len(expected[text])
        for one, other in zip(spans, expected[text]):
            assert [one[key] for key in ("start", "end", "label")] == [
                other[key] for key in ("start", "end", "label")
            ]
            assert one["score"] == pytest.approx(other["score"], abs=1e-4)
    run("convert", tool, f"train={output}", tmp_path / "corpus")
    docs = DocBin().from_disk(tmp_path / "corpus" / "train.spacy").get_docs(nlp.vocab)
    for doc in docs:
        gold = {(span.start_char, span.end_char, span.label_) for span in doc.spans["sc"]}
        text = doc.user_data.get("text", doc.text)
        assert gold == {(s["start"], s["end"], s["label"]) for s in expected.pop(text)}
    assert not expected


def test_candidates_reach_down_to_the_lowest_threshold(tmp_path):
    """A pipeline that finds nothing at its threshold is unsure of something all the same."""
    nlp = train(make_pipeline("locate_and_label_ner"), 60)
    nlp.get_pipe("ner").cfg["threshold"] = 1.0  # type: ignore[attr-defined]
    nlp.to_disk(tmp_path / "model")
    texts = write(tmp_path / "in.jsonl", "and of the", "the US Supreme Court")
    pick(tmp_path / "model", texts, tmp_path / "out.jsonl", "--format", "doccano", "--n", 1)
    [found] = lines(tmp_path / "out.jsonl")
    assert found["text"] == "the US Supreme Court" and found["label"] == []


def test_where_there_is_nothing_to_choose_by(model, tmp_path):
    texts = write(tmp_path / "in.jsonl", "nothing to see here .", NEW[3], "see here", "to see")
    said = all_of(pick(model, texts, tmp_path / "a.json", "--n", 3))
    assert "finds nothing in 2 of the picked texts: they come last, in the order of TEXTS" in said
    tasks = json.loads((tmp_path / "a.json").read_text("utf8"))
    assert [each["data"]["text_id"] for each in tasks] == [f"in.jsonl:{i}" for i in (2, 1, 3)]


def test_words_of_many_texts_are_forgotten(model, tmp_path, monkeypatch):
    """The picked texts are not."""
    texts = write(tmp_path / "in.jsonl", *TEXTS, *NEW, *(f"new{i} words{i}" for i in range(300)))
    found = []
    for characters in (10**9, 0):
        monkeypatch.setattr("spacy_nested_ner.scale.pipelines.LEARNED_CHARACTERS", characters)
        pick(model, texts, tmp_path / "out.jsonl", "--format", "prodigy", "--n", 20)
        found.append(lines(tmp_path / "out.jsonl"))
    assert found[0] == found[1] and len(found[0]) == 20


def test_which_tool(model, tmp_path):
    assert {tool.value for tool in Tool} == set(task_writers.get_all())
    texts = write(tmp_path / "in.jsonl", *NEW)
    pick(model, texts, tmp_path / "out.json", "--n", 1)
    assert "predictions" in json.loads((tmp_path / "out.json").read_text("utf8"))[0]
    said = all_of(pick(model, texts, tmp_path / "out.jsonl", code=1))
    assert "Give --format: prodigy, label-studio, doccano." in said
    said = all_of(pick(model, texts, tmp_path / "o.json", "--format", "prodigy", code=1))
    assert "prodigy reads .jsonl files. Call it o.jsonl." in said
    assert not (tmp_path / "o.json").exists() and "Nothing was written" in said


def test_texts_that_cannot_be_used(model, tmp_path):
    texts = tmp_path / "in.jsonl"
    rows: List[Any] = [{"text": NEW[0]}, {"text": None}, {"body": "x"}, {"text": NEW[0]}]
    rows += [{"text": ""}, {"text": " \n"}, {"text": "a " * 500_001}, {"text": NEW[1]}]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = all_of(pick(model, texts, tmp_path / "out.jsonl", "--format", "prodigy"))
    assert sorted(each["text"] for each in lines(tmp_path / "out.jsonl")) == sorted(NEW[:2])
    assert {each["meta"]["text_id"] for each in lines(tmp_path / "out.jsonl")} == {
        "in.jsonl:1",
        "in.jsonl:8",
    }
    assert "Left out: 3 texts that cannot be used. The text with the id 'in.jsonl:2'" in said
    assert "There are only 2 different texts. All of them are picked." in said
    write(texts, " ")
    said = all_of(pick(model, texts, tmp_path / "none.jsonl", "--format", "prodigy", code=1))
    assert "has no text that can be picked" in said and not (tmp_path / "none.jsonl").exists()


def test_another_column_and_another_key(tmp_path):
    nlp = train(make_pipeline("locate_and_label_ner"), 30)
    nlp.add_pipe("span_ruler", config={"spans_key": "rules"})
    nlp.to_disk(tmp_path / "model")
    (tmp_path / "in.csv").write_text("n,abstract\n1,the US Supreme Court\n")
    args = (tmp_path / "model", tmp_path / "in.csv", tmp_path / "out.json")
    assert "has no column 'text'" in all_of(pick(*args, code=1))
    said = all_of(pick(*args, "--text", "abstract", "--spans-key", "rules", code=1))
    assert "No component of the pipeline (ner, span_ruler) scores spans under" in said
    pick(*args, "--text", "abstract")
    assert json.loads((tmp_path / "out.json").read_text("utf8"))[0]["data"]["text_id"] == "in.csv:1"


def test_pipelines_that_cannot_pick(tmp_path):
    texts = write(tmp_path / "in.jsonl", *NEW)
    rules = save_rules(tmp_path / "rules", "sc")
    assert "(sc) scores spans under" in all_of(pick(rules, texts, tmp_path / "a.json", code=1))
    nlp = spacy.blank("en")
    nlp.add_pipe("locate_and_label_ner", name="ner")
    nlp.to_disk(tmp_path / "empty")
    said = all_of(pick(tmp_path / "empty", texts, tmp_path / "a.json", code=1))
    assert "Component 'ner' was never trained" in said
    nlp = train(make_pipeline("locate_and_label_ner"), 30)
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc", "overwrite": False})
    ruler.add_patterns([{"label": "GPE", "pattern": "Paris"}])  # type: ignore[attr-defined]
    nlp.to_disk(tmp_path / "both")
    said = all_of(pick(tmp_path / "both", texts, tmp_path / "a.json", code=1))
    assert "have no scores at the end of the pipeline" in said
    assert "a component after 'ner' changes them. Remove that component." in said


@Language.component("tests_picky")
def picky(doc: Doc) -> Doc:
    if "Oslo" in doc.text:
        raise ValueError("not this one")
    return doc


def test_a_text_on_which_the_pipeline_fails_is_left_out(tmp_path):
    nlp = train(make_pipeline("locate_and_label_ner"), 30)
    nlp.add_pipe("tests_picky", first=True)
    nlp.to_disk(tmp_path / "model")
    texts = write(tmp_path / "in.jsonl", *NEW)
    said = all_of(pick(tmp_path / "model", texts, tmp_path / "out.json"))
    assert "1 text that cannot be used. The text with the id 'in.jsonl:2': 'tests_picky'" in said
    assert len(json.loads((tmp_path / "out.json").read_text("utf8"))) == 3


def test_the_guide(model, tmp_path, monkeypatch):
    """Its commands in their order, with exports that nobody has changed."""
    monkeypatch.chdir(tmp_path)
    spacy.load(model).to_disk("model-best")
    write(Path("texts.jsonl"), *TEXTS, *NEW)
    text = GUIDE.read_text("utf8")
    commands = guide_commands()
    agreement = ["convert", "convert", "evaluate"]
    names = [*["pick", "convert"] * 3, "pick", *agreement]
    assert [command.split()[0] for command in commands] == names
    *commands, again = commands[: -len(agreement)]
    for command in commands:
        if command.startswith("convert"):
            tool, export = shlex.split(command)[1:3]
            accept(tool, export.removeprefix("train="))
        run(*shlex.split(command))
        if command.startswith("convert"):
            counts = [len(DocBin().from_disk(path)) for path in Path("rounds/1").glob("*.spacy")]
            assert sum(counts) == len({*TEXTS, *NEW})
    docs = list(DocBin().from_disk("rounds/1/train.spacy").get_docs(spacy.blank("en").vocab))
    DocBin(docs=docs[4:]).to_disk("rounds/1/train.spacy")
    DocBin(docs=docs[3:4]).to_disk("test.spacy")
    DocBin(docs=docs[2:3]).to_disk("dev.spacy")
    Path("all_train").mkdir()
    (copy,) = re.findall(r"^cp (.*)$", text, re.M)
    shutil.copy(*copy.split())
    run(*shlex.split(again))
    left = {each["data"]["text"] for each in json.loads(Path("picked.json").read_text("utf8"))}
    assert left == {doc.text for doc in docs[:2]}


def guide_commands() -> List[str]:
    return re.findall(r"^python -m spacy nested-ner (.*)$", GUIDE.read_text("utf8"), re.M)


def test_agreement_by_the_guide(tmp_path, monkeypatch):
    """Of three texts both have annotated two."""
    monkeypatch.chdir(tmp_path)

    def task(number: int, text: str, **spans: Any) -> Any:
        annotations = [
            {
                "completed_by": {"ann": 1, "bob": 2}[name],
                "result": [
                    {"value": {"start": start, "end": end, "labels": [label]}}
                    for start, end, label in places
                ],
            }
            for name, places in spans.items()
        ]
        return {"id": number, "data": {"text": text}, "annotations": annotations}

    tasks = [
        task(1, "The US embassy", ann=[(4, 14, "ORG"), (4, 6, "GPE")], bob=[(4, 14, "ORG")]),
        task(2, "In Oslo", ann=[], bob=[]),
        task(3, "Nobody", ann=[]),
    ]
    Path("export.json").write_text(json.dumps(tasks), "utf8")
    *commands, last = guide_commands()[-3:]
    for command in commands:
        run(*shlex.split(command))
    printed = " ".join(run(*shlex.split(last)).output.split())
    assert "strict micro 100.00 50.00 66.67 1 2" in printed
    assert "GPE - 0.00 0.00 0 1" in printed and "ORG 100.00 100.00 100.00 1 1" in printed
    assert "1 annotated docs are left out" in printed


def accept(tool: str, path: str) -> None:
    """Write the export of a tool, after its import file."""
    if tool == "label-studio":
        tasks = json.loads(Path("picked.json").read_text("utf8"))
        for each in tasks:
            each["annotations"] = [{"id": 1, **each.pop("predictions")[0]}]
        Path(path).write_text(json.dumps(tasks), "utf8")
    else:
        own = {"answer": "accept"} if tool == "prodigy" else {"id": 1}
        rows = [{**each, **own} for each in lines(Path("picked.jsonl"))]
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf8")


@pytest.mark.parametrize("tool", ["prodigy", "doccano"])
def test_what_no_tool_has_seen_is_not_gold(model, tmp_path, caplog, tool):
    picked = tmp_path / "picked.jsonl"
    pick(model, write(tmp_path / "in.jsonl", *TEXTS), picked, "--format", tool)
    run("convert", tool, f"train={picked}", tmp_path / "corpus", code=1)
    assert f"All items were left out: {len(TEXTS)} not annotated." in caplog.text
    assert "give it another one, such as an id" in caplog.text


def test_texts_that_are_annotated_already_are_not_picked(model, tmp_path):
    nlp = spacy.blank("en")
    texts = ["the gene (IL-2).", *TEXTS]
    known = [nlp.make_doc(TEXTS[0]), Doc(nlp.vocab, words=["the", "gene", "(", "IL-2", ")", "."])]
    (tmp_path / "known").mkdir()
    DocBin(docs=known).to_disk(tmp_path / "known" / "known.spacy")
    output = tmp_path / "out.jsonl"
    run = (model, write(tmp_path / "in.jsonl", *texts), output, "--format", "prodigy")
    assert "--without" not in all_of(pick(*run))
    said = all_of(pick(*run, "--without", tmp_path / "known"))
    assert "Left out: 2 texts that --without has." in said
    assert {each["text"] for each in lines(output)} == {*TEXTS[1:]}
    DocBin(docs=[nlp.make_doc(" ".join(texts))]).to_disk(tmp_path / "other.spacy")
    said = all_of(pick(*run, "--without", tmp_path / "other.spacy"))
    assert "No text is left out by --without, which compares whole texts" in said
    DocBin(docs=[nlp.make_doc(text) for text in texts]).to_disk(tmp_path / "all.spacy")
    said = all_of(pick(*run, "--without", tmp_path / "all.spacy", code=1))
    assert f"no text that can be picked. Left out: {len(texts)} texts that" in said


def test_the_texts_are_not_overwritten(model, tmp_path):
    texts = write(tmp_path / "in.jsonl", *TEXTS)
    before = texts.read_bytes()
    said = all_of(pick(model, texts, texts, "--format", "prodigy", code=1))
    assert "in.jsonl is to be read and to be written. Choose another output." in said
    assert texts.read_bytes() == before


def test_a_folder_with_dev_and_test_is_told_of(model, tmp_path):
    for name in ("train", "dev"):
        docs = [spacy.blank("en").make_doc(f"{name} of the US")]
        DocBin(docs=docs).to_disk(tmp_path / f"{name}.spacy")
    said = all_of(pick(model, tmp_path, tmp_path / "out.json"))
    assert "contains train.spacy, dev.spacy; all are read together" in said


def test_few_long_texts_are_in_memory_together(model, tmp_path, monkeypatch):
    texts, output = write(tmp_path / "in.jsonl", *TEXTS), tmp_path / "out.jsonl"
    zone = LoadedPipeline.zone

    def sizes() -> List[int]:
        found: List[int] = []
        with monkeypatch.context() as patched:
            patched.setattr(
                LoadedPipeline, "zone", lambda *args: found.append(len(args[1])) or zone(*args)
            )
            pick(model, texts, output, "--format", "prodigy")
        return found

    assert sizes() == [len(TEXTS)]
    monkeypatch.setattr(inputs, "BATCH_CHARACTERS", max(map(len, TEXTS)))
    assert sum(sizes()) == len(TEXTS) < 2 * len(sizes())


class Batchwise(TrainablePipe):
    """Like most of spaCy's, it gives up the whole batch of a doc that it fails on."""

    def __init__(self, vocab, name) -> None:
        self.vocab, self.name, self.model, self.cfg = vocab, name, None, {}

    def predict(self, docs):
        if any("Oslo" in doc.text for doc in docs):
            raise ValueError("not this one")

    def set_annotations(self, docs, scores): ...

    def to_disk(self, path, **_): ...

    def from_disk(self, path, **_):
        return self


Language.factory("tests_batchwise", func=lambda nlp, name: Batchwise(nlp.vocab, name))


def test_one_text_does_not_cost_its_batch(model, tmp_path):
    texts = write(tmp_path / "in.jsonl", *NEW)
    pick(model, texts, tmp_path / "all.json")
    nlp = spacy.load(model)
    nlp.add_pipe("tests_batchwise", first=True)
    nlp.to_disk(tmp_path / "model")
    said = all_of(pick(tmp_path / "model", texts, tmp_path / "out.json"))
    fails = [i for i, text in enumerate(NEW, start=1) if "Oslo" in text]
    assert len(fails) == 1
    what = f"1 text that cannot be used. The text with the id 'in.jsonl:{fails[0]}'"
    assert what in said
    every, kept = (
        json.loads((tmp_path / name).read_text("utf8")) for name in ("all.json", "out.json")
    )
    assert len(kept) == len(every) - 1 > 0
