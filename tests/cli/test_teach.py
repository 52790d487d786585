from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import spacy
from spacy.tokens import DocBin, Span, SpanGroup
from spacy.training import Example
from spacy.training.augment import create_lower_casing_augmenter

from spacy_nested_ner.cli.teach import taught as taught_doc
from spacy_nested_ner.evaluation.scores.own_thresholds import scored_components
from spacy_nested_ner.pipeline.gold import is_taught, keep_sure
from tests.cli.commands import run
from tests.conftest import add_own_ner, make_examples, make_pipeline, spans_of, train


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    nlp = train(make_pipeline("locate_and_label_ner", threshold=0.6), 60)
    nlp.add_pipe("sentencizer", first=True)
    add_own_ner(nlp)  # it takes no error handler
    nlp.to_disk(folder)
    return folder


@pytest.fixture(scope="module")
def taught(teacher, tmp_path_factory) -> Path:
    """What the teacher finds in the sentences that it knows, two of them in one text."""
    folder = tmp_path_factory.mktemp("taught")
    texts = [eg.reference.text for eg in make_examples(spacy.load(teacher))]
    lines = [f"{texts[0]} . {texts[1]}", *texts[2:]]
    (folder / "texts.txt").write_text("\n".join(lines), encoding="utf8")
    output = folder / "new" / "taught.spacy"
    printed = run("teach", teacher, folder / "texts.txt", output)
    assert str(output.resolve()) in printed and f"{len(lines)} texts" in printed
    return output


def test_entities_have_the_weight_of_their_score(teacher, taught):
    nlp = spacy.load(teacher)
    docs = list(DocBin().from_disk(taught).get_docs(nlp.vocab))
    assert len(list(docs[0].sents)) == 2
    found = 0
    for doc in docs:
        group = doc.spans["sc"]
        weights = group.attrs["weights"]
        assert len(weights) == len(group)
        answer = nlp(doc.text)
        predicted = answer.spans["sc"]
        sure = [(s.start, s.end, s.label_) for s, w in zip(group, weights) if w >= 0.5]
        assert sorted(sure) == sorted((s.start, s.end, s.label_) for s in predicted)
        for span, score in zip(predicted, predicted.attrs["scores"]):
            same = [(s.start, s.end, s.label) == (span.start, span.end, span.label) for s in group]
            weight = weights[same.index(True)]
            assert weight == pytest.approx(1 - (1 - score) / 0.8, abs=1e-3)
            found += 1
    assert found > 5


@pytest.mark.parametrize(
    ("below", "threshold"), [(0.6996, 0.7), (0.8132, 0.8132702392), (0.0004, 0.0005)]
)
def test_what_is_below_the_threshold_is_not_sure(below, threshold):
    nlp = spacy.blank("en")
    doc = nlp.make_doc("a b")
    doc.spans["sc"] = SpanGroup(
        doc,
        name="sc",
        spans=[Span(doc, 0, 1, "X"), Span(doc, 1, 2, "X")],
        attrs={"scores": np.array([below, threshold], dtype="float32")},
    )
    nlp.add_pipe("spancat", config={"threshold": threshold})
    copy = taught_doc(doc, [*scored_components(nlp).values()])
    keep_sure(copy, "sc")
    assert [span.text for span in copy.spans["sc"]] == ["b"]


def test_blank_texts_are_not_counted(teacher, tmp_path):
    texts = [eg.reference.text for eg in make_examples(spacy.load(teacher))]
    (tmp_path / "texts.txt").write_text(f"{texts[0]}\n\n \n{texts[1]}\n", encoding="utf8")
    printed = run("teach", teacher, tmp_path / "texts.txt", tmp_path / "taught.spacy")
    assert "Annotated 2 texts with" in printed


def test_a_student_learns_from_them(teacher, taught):
    student = make_pipeline("piqn_ner")
    docs = list(DocBin().from_disk(taught).get_docs(student.vocab))
    examples = [Example(student.make_doc(doc.text), doc) for doc in docs]
    optimizer = student.initialize(lambda: examples)
    for _ in range(80):
        student.update(examples, sgd=optimizer)
    known = spacy.load(teacher)
    same = total = 0
    for doc in docs:
        sure, mine = set(spans_of(known(doc.text))), set(spans_of(student(doc.text)))
        same, total = same + len(sure & mine), total + len(sure | mine)
    assert same / total > 0.7


def test_what_cannot_be_used_is_named_and_nothing_is_written(teacher, tmp_path):
    (tmp_path / "texts.txt").write_text("some text\n", encoding="utf8")
    texts, output = tmp_path / "texts.txt", tmp_path / "out.spacy"
    assert "must be a .spacy file" in run("teach", teacher, texts, tmp_path / "out.json", code=1)
    assert "gone.txt" in run("teach", teacher, tmp_path / "gone.txt", output, code=1)
    printed = run("teach", teacher, texts, output, "--spans-key", "other", code=1)
    assert "'other'" in printed
    (tmp_path / "blank.txt").write_text(" \n \n", encoding="utf8")
    assert "finds nothing" in run("teach", teacher, tmp_path / "blank.txt", output, code=1)
    assert not output.exists()


def test_gold_is_not_overwritten(teacher, taught, tmp_path):
    texts, gold = tmp_path / "texts.txt", tmp_path / "gold.spacy"
    texts.write_text("the US Supreme Court\n", encoding="utf8")
    nlp = spacy.blank("en")
    DocBin(docs=[eg.reference for eg in make_examples(nlp)]).to_disk(gold)
    before = gold.read_bytes()
    assert "not all is from 'teach'" in run("teach", teacher, texts, gold, code=1)
    assert "is to be read and to be written" in run("teach", teacher, gold, gold, code=1)
    assert gold.read_bytes() == before
    flat = nlp.make_doc("the US")
    flat.ents = [Span(flat, 1, 2, "GPE")]
    own = list(DocBin().from_disk(taught).get_docs(nlp.vocab))
    for docs in ([flat], [nlp.make_doc("the US")], [*own, make_examples(nlp)[0].reference]):
        DocBin(docs=docs).to_disk(gold)
        assert "not all is from 'teach'" in run("teach", teacher, texts, gold, code=1)
    again = tmp_path / "again.spacy"
    again.write_bytes(taught.read_bytes())
    for _ in range(2):  # what it is to replace is not what it is to do without
        run("teach", teacher, texts, again, "--without", tmp_path / "again.spacy")
        assert len(DocBin().from_disk(again)) == 1


def test_several_components_teach_together(taught, tmp_path):
    nlp = train(make_pipeline("locate_and_label_ner"), 40)
    nlp.add_pipe("ner", name="second", source=train(make_pipeline("piqn_ner"), 40))
    nlp.get_pipe("second").cfg["spans_key"] = "other"
    nlp.to_disk(tmp_path / "both")
    (tmp_path / "texts.txt").write_text("IL-2 gene promoter\n", encoding="utf8")
    output = tmp_path / "taught.spacy"
    keys = ("--spans-key", "sc", "--spans-key", "other")
    run("teach", tmp_path / "both", tmp_path / "texts.txt", output, *keys)
    (doc,) = DocBin().from_disk(output).get_docs(nlp.vocab)
    assert set(doc.spans) == {"sc", "other"}
    for group in doc.spans.values():
        assert len(group) == len(group.attrs["weights"]) > 0


def test_labels_that_the_teacher_lacks_are_told_of(taught):
    nlp = make_pipeline("piqn_ner", examples=None)
    docs = DocBin().from_disk(taught).get_docs(nlp.vocab)
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in docs]
    gold = Example.from_dict(nlp.make_doc("Bern is big"), {"spans": {"sc": [(0, 4, "TOWN")]}})
    with pytest.warns(UserWarning) as caught:
        nlp.initialize(lambda: [*examples, gold])
    said = " ".join(str(each.message) for each in caught)
    assert "annotated docs have labels that the docs of 'nested-ner teach' lack: 'TOWN'." in said
    assert "docs of 'nested-ner teach' have labels that the annotated docs lack: 'CELL'" in said


def test_inspect_counts_what_the_teacher_is_sure_of(taught):
    printed = run("inspect", taught, taught, "--json")
    report = json.loads(printed)
    assert report["dev"]["entities"] == report["train"]["entities"]
    docs = list(DocBin().from_disk(taught).get_docs(spacy.blank("en").vocab))
    weights = [w for doc in docs for w in doc.spans["sc"].attrs["weights"]]
    assert report["train"]["entities"] == sum(w >= 0.5 for w in weights) < len(weights)
    (first, *_) = report["warnings"]
    assert f"In {len(docs)} of {len(docs)} docs" in first and "weight from 0.5 on" in first


def test_inspect_tells_of_labels_that_one_side_lacks(taught, tmp_path):
    nlp = spacy.blank("en")
    gold = nlp.make_doc("Bern is big")
    gold.spans["sc"] = [Span(gold, 0, 1, "TOWN")]
    DocBin(docs=[gold]).to_disk(tmp_path / "gold.spacy")
    shutil.copy(taught, tmp_path)
    report = json.loads(run("inspect", tmp_path, "--json"))
    (problem,) = [each for each in report["warnings"] if "lack: 'TOWN'" in each]
    assert problem.startswith(f"{tmp_path}: the annotated docs have labels that the docs of")


def test_unsure_entities_alone_are_none_and_lost_weights_are_missed(taught, tmp_path):
    docs = list(DocBin().from_disk(taught).get_docs(spacy.blank("en").vocab))
    for doc in docs:
        doc.spans["sc"].attrs["weights"] = [0.4] * len(doc.spans["sc"])
    DocBin(docs=docs).to_disk(tmp_path / "unsure.spacy")
    unsure, config = tmp_path / "unsure.spacy", tmp_path / "mine.cfg"
    gold = make_examples(spacy.blank("en"))[0].reference
    DocBin(docs=[gold]).to_disk(tmp_path / "gold.spacy")
    printed = run("init", unsure, tmp_path / "gold.spacy", config, code=1)
    assert "and it is sure of none of them" in printed and not config.exists()
    for doc in docs:
        doc.spans["sc"] = list(doc.spans["sc"])
    DocBin(docs=docs).to_disk(tmp_path / "lost.spacy")
    assert "has lost its weights" in run("inspect", tmp_path / "lost.spacy", code=1)


def test_hard_labels_are_made_as_the_guide_says(taught, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("corpus/both").mkdir(parents=True)
    shutil.copy(taught, "corpus/both")
    guide = Path(__file__).parents[2] / "docs" / "guide" / "training.md"
    blocks = re.findall(r"```python\n(.*?)```", guide.read_text("utf8"), re.S)
    (code,) = (block for block in blocks if "taught_hard" in block)
    exec(code, {})
    nlp = make_pipeline("piqn_ner", examples=None)
    soft, hard = (
        list(DocBin().from_disk(path).get_docs(nlp.vocab))
        for path in (taught, Path("corpus/taught_hard.spacy"))
    )
    for before, after in zip(soft, hard, strict=True):
        group = before.spans["sc"]
        sure = [w >= 0.5 for w in group.attrs["weights"]]
        wanted = [(s.start, s.end, s.label) for s, is_sure in zip(group, sure) if is_sure]
        assert [(s.start, s.end, s.label) for s in after.spans["sc"]] == wanted
        assert not is_taught(after.spans["sc"])
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in hard]
    nlp.initialize(lambda: examples)
    nlp.update(examples, sgd=nlp.create_optimizer())


def test_weights_that_an_augmenter_has_lost_are_missed(taught):
    """Without them every guess would be an entity."""
    student = make_pipeline("piqn_ner")
    docs = list(DocBin().from_disk(taught).get_docs(student.vocab))
    augment = create_lower_casing_augmenter(1.0)
    examples = [
        each for doc in docs for each in augment(student, Example(student.make_doc(doc.text), doc))
    ]
    student.initialize(lambda: examples)
    with pytest.raises(ValueError, match=r"lost its weights.*augmenter"):
        student.update(examples, sgd=student.create_optimizer())
