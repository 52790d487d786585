from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import spacy
import srsly
import torch
from spacy.language import Language
from spacy.tokens import DocBin, Span
from wasabi import msg

from spacy_nested_ner.cli._formats import FormatsCommand
from spacy_nested_ner.cli.output import plain_output, print_table
from tests.cli.commands import page_data, run
from tests.conftest import ODD_NAMES

SAMPLE = Path(__file__).parents[2] / "assets" / "genia" / "sample" / "GENIAcorpus3.02.sample.xml"


def test_the_command_hangs_below_spacy():
    from spacy.cli._util import app

    assert "nested-ner" in [group.typer_instance.info.name for group in app.registered_groups]


def test_importing_the_commands_loads_no_reader_and_no_page():
    code = (
        "import sys, spacy_nested_ner.cli; cheap = ('.about', '.displacy', '.tables', '.warn'); "
        "print([m for m in sys.modules if m.startswith('spacy_nested_ner.') and "
        "not m.startswith('spacy_nested_ner.cli') and not m.endswith(cheap)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("tokens", ["published", "spacy"])
def test_convert(tmp_path, tokens):
    output = run(
        "convert", "genia", SAMPLE, tmp_path / "c", "--tokens", tokens, "--spans-key", "nest"
    )
    report = json.loads((tmp_path / "c" / "report.json").read_text("utf8"))
    assert report["tokens"] == tokens and report["source"] == SAMPLE.name
    train = report["splits"]["train"]
    assert train["entities"] + sum(train["dropped"].get("misaligned", {}).values()) == 680
    assert (train["entities"] == 680) == (tokens == "published")
    docs = list(
        DocBin().from_disk(tmp_path / "c" / "train.spacy").get_docs(spacy.blank("en").vocab)
    )
    assert len(docs) == 185
    assert sum(len(doc.spans["nest"]) for doc in docs) == train["entities"]
    assert f"entities {train['entities']} 0 0" in output
    assert "No documents for dev, test" in output and "dev=PATH" in output


def test_convert_gives_dev_one_of_few_texts(tmp_path):
    for i in range(5):
        (tmp_path / f"{i}.txt").write_text("IL-2 rose.", encoding="utf8")
        (tmp_path / f"{i}.ann").write_text("T1\tprotein 0 4\tIL-2\n", encoding="utf8")
    output = run("convert", "brat", tmp_path, tmp_path / "out")
    assert "documents 4 1 0" in output
    assert "No documents for test: the files are written, but empty." in output
    assert "Training needs a dev set" not in output
    output = run("convert", "brat", tmp_path / "0.txt", tmp_path / "one", "--sentences", "lines")
    assert "Training needs a dev set" in output and "cut its text into several" in output


def test_convert_articles_with_all_labels(tmp_path):
    run("convert", "genia", SAMPLE, tmp_path, "--group", "article", "--all-labels")
    train = json.loads((tmp_path / "report.json").read_text("utf8"))["splits"]["train"]
    assert (train["documents"], train["sentences"]) == (18, 185)
    assert train["entities"] == 680 + sum(train["same_span_labels"].values())
    assert train["same_span_labels"]


@pytest.mark.parametrize(
    "name, content, problem",
    [
        ("cut.xml", SAMPLE.read_bytes()[:5000], "cut.xml, line 3"),
        ("none.xml", None, "no such file"),
    ],
)
def test_convert_reports_bad_files(tmp_path, name, content, problem):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    output = run("convert", "genia", tmp_path / name, tmp_path / "out", code=1)
    assert problem in output and "Nothing was written" in output
    assert not (tmp_path / "out").exists()


def test_convert_keeps_what_is_before_damage_if_asked(tmp_path):
    (tmp_path / "cut.xml").write_bytes(SAMPLE.read_bytes()[:50_000])
    output = run("convert", "genia", tmp_path / "cut.xml", tmp_path / "out", "--skip-errors")
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf8"))
    assert "Skipped 1 errors" in output and 50 < report["splits"]["train"]["sentences"] < 185
    assert "ends too early" in report["first_skipped_errors"][0]


def test_convert_unknown_format(tmp_path):
    output = run("convert", "nope", SAMPLE, tmp_path / "out", code=1)
    assert "Known formats: ace, brat, " in output and ", genia, " in output
    assert "Did you mean" not in output


@pytest.mark.parametrize("command", ["convert", "export"])
def test_a_format_that_is_misspelt(tmp_path, command):
    output = run(command, "paper_json", SAMPLE, tmp_path / "out", code=1)
    assert "format 'paper_json'. Did you mean 'papers-json'?" in output


def test_convert_says_what_brat_is(tmp_path):
    (tmp_path / "x.jsonl").write_text("{}\n", encoding="utf8")
    output = run("convert", "brat", tmp_path / "x.jsonl", tmp_path / "out", code=1)
    assert "x.jsonl: not BRAT standoff. Expected a text (DOC.txt)" in output
    assert "x.txt" not in output


def test_convert_draws_no_bar_where_nobody_watches(tmp_path):
    assert "records/s" not in run("convert", "genia", SAMPLE, tmp_path)


def test_no_colours_in_a_pipe():
    command = [sys.executable, "-m", "spacy", "nested-ner", "inspect", "nowhere.spacy"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "nowhere.spacy: no such file" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("no_color, coloured", [("", True), ("1", False)])
def test_colours_on_a_terminal(monkeypatch, capsys, no_color, coloured):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("ANSI_COLORS_DISABLED", raising=False)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(msg, "show_color", True)
    with plain_output():
        msg.good("done")
    assert ("\x1b" in capsys.readouterr().out) == coloured
    assert msg.show_color


@pytest.mark.parametrize("encoding", ["cp1252", "ascii:surrogateescape", "utf-8"])
def test_labels_of_all_scripts_are_printed(encoding):
    """With escapes of what the output cannot hold."""
    code = (
        "from wasabi import msg; from spacy_nested_ner.cli.output import plain_output\n"
        "with plain_output(): msg.good('组 ß'); print('组 ß \\ud800')"
    )
    settings = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", code], env=settings, capture_output=True, check=True
    )
    encoding = encoding.split(":")[0]
    first, second = done.stdout.decode(encoding).splitlines()
    label = "组 ß".encode(encoding, "backslashreplace").decode(encoding)
    assert first.endswith(label) and second == f"{label} \\ud800"


def test_control_characters_are_escaped(capsys):
    """A label could clear the screen, or forge what stands on it."""
    label = "DNA\x1b[2J\x07\r\x9b31m"
    with plain_output():
        msg.warn(label, label)
        msg.text(label)
        print_table([[label, "1"]], header=(label, "n"))
        warned = warnings.formatwarning(label, UserWarning, "file.py", 3)
    printed = capsys.readouterr().out + warned
    assert printed.count(r"DNA\x1b[2J\x07\r\x9b31m") == 6
    assert not set("\x07\r\x9b") & set(printed) and "\x1b[2J" not in printed
    assert "text" not in vars(msg)


def test_warnings_are_sentences():
    before = warnings.formatwarning
    with plain_output():
        text = warnings.formatwarning("Too short.", UserWarning, "file.py", 3, "warn()")
    assert text == "Warning: Too short.\n" and warnings.formatwarning is before


@pytest.mark.parametrize("command", ["convert", "export"])
def test_the_help_lists_the_formats(command):
    output = run(command, "--help")
    assert "papers-json JSON of PIQN, Locate and Label and DiffusionNER" in output
    assert ("few-nerd Few-NERD: labels without prefixes" in output) == (command == "convert")


def test_the_help_lists_a_reader_without_a_description(monkeypatch):
    monkeypatch.setattr(
        FormatsCommand, "formats", lambda self: {"mine": "", "other": "Other files."}
    )
    assert "other Other files." in run("convert", "--help")


COLUMNS = "The O O\nIL-2 B-DNA B-protein\ngene I-DNA O\n\nNo O O\n\n"


def test_convert_several_inputs_with_settings_and_skipped_errors(tmp_path):
    train, other = tmp_path / "train.txt", tmp_path / "other.txt"
    train.write_text(COLUMNS + "x I-DNA O\n", encoding="utf8")
    other.write_text(COLUMNS, encoding="utf8")
    args = ("convert", "columns", train, f"test={other}", tmp_path / "out", "--set", "scheme=BIO")
    assert "train.txt, line 7: I-DNA at the start" in run(*args, code=1)
    output = run(*args, "--skip-errors", "--set", "tags=1,2")
    assert "Skipped 1 errors" in output and "No documents for dev" in output
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf8"))
    assert report["source"] == ["train.txt", "other.txt"] and report["skipped_errors"] == 1
    assert report["settings"] == {"scheme": "BIO", "tags": "1,2"}
    splits = report["splits"]
    assert [splits[name]["documents"] for name in ("train", "dev", "test")] == [2, 0, 2]
    assert splits["test"]["nested_entities"] == 2


def test_an_empty_file_does_not_replace_a_full_one(tmp_path):
    path = tmp_path / "all.txt"
    path.write_text(COLUMNS * 10, encoding="utf8")
    run("convert", "columns", path, tmp_path / "out")
    before = (tmp_path / "out" / "train.spacy").read_bytes()
    output = run("convert", "columns", f"train={path}", tmp_path / "out", code=1)
    assert "dev.spacy holds 2 docs, and there are none for it now. Choose another" in output
    assert (tmp_path / "out" / "train.spacy").read_bytes() == before
    output = run("convert", "columns", f"train={path}", tmp_path / "round2")
    assert "No documents for dev, test" in output and "Training needs a dev set" not in output


def lines(path, items) -> None:
    path.write_text("\n".join(map(json.dumps, items)), encoding="utf8")


def test_entities_inside_tokens_are_told_of(tmp_path):
    path = tmp_path / "a.jsonl"
    items = [{"text": "IL-3treated cells", "label": [[0, 4, "PROT"], [12, 17, "CELL"]]}] * 3
    lines(path, items)
    output = run("convert", "doccano", f"train={path}", tmp_path / "out")
    assert "3 entities begin or end inside a token and are left out: PROT (3 of 3)." in output
    assert "The first: PROT 'IL-3' in 'IL-3treated' (a.jsonl:1). No score" in output
    assert "begin or end" not in run(
        "convert", "doccano", f"train={path}", tmp_path / "cut", "--tokens", "cut"
    )
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf8"))["splits"]["train"]
    assert report["misaligned_example"] == "PROT 'IL-3' in 'IL-3treated' (a.jsonl:1)"
    data = tmp_path / "out" / "train.spacy"
    for doc in DocBin().from_disk(data).get_docs(spacy.blank("en").vocab):
        assert doc.user_data.keys() == {"doc_id", "misaligned"}
    printed = run("inspect", data)
    assert "3 entities of train are not in it" in printed and "PROT (3 of 3)" in printed
    nlp = spacy.blank("en")
    nlp.add_pipe("span_ruler", config={"spans_key": "sc"}).add_patterns(
        [{"label": "CELL", "pattern": "cells"}]
    )
    nlp.to_disk(tmp_path / "rules")
    output = tmp_path / "metrics.json"
    printed = run("evaluate", tmp_path / "rules", data, "-o", output)
    assert "3 gold entities begin or end inside a token" in printed and "100.00" in printed
    assert json.loads(output.read_text("utf8"))["data"]["misaligned"] == {"PROT": 3}


def test_a_rare_label_that_is_lost_is_told_of(tmp_path):
    """One entity of 61 is less than 2 %, but all that its label has."""
    path = tmp_path / "a.jsonl"
    items = [{"text": "T cells", "label": [[2, 7, "CELL"]]}] * 60
    items.append({"text": "54yo", "label": [[0, 2, "AGE"]]})
    path.write_text("\n".join(map(json.dumps, items)), encoding="utf8")
    assert "left out: AGE (1 of 1)." in run("convert", "doccano", f"train={path}", tmp_path / "out")
    items = [*items[:20], {"text": "Tcells", "label": [[1, 6, "CELL"]]}, *items[:40]]
    path.write_text("\n".join(map(json.dumps, items)), encoding="utf8")
    printed = run("convert", "doccano", f"train={path}", tmp_path / "few")
    assert "misaligned 1" in printed and "are left out" not in printed


def test_convert_splits_by_document(tmp_path):
    path = tmp_path / "all.txt"
    path.write_text(COLUMNS * 10, encoding="utf8")
    args = ("convert", "columns", path, tmp_path / "out", "--split-seed", 7)
    run(*args, "--split-fractions", "0.5,0.25,0.25")
    splits = json.loads((tmp_path / "out" / "report.json").read_text("utf8"))["splits"]
    assert [splits[name]["documents"] for name in ("train", "dev", "test")] == [10, 5, 5]
    for wrong in ("0.5,0.25", "a,b,c"):
        output = run(*args, "--split-fractions", wrong, code=1)
        assert "three numbers of at least 0 that sum to 1" in output
        assert f"not {wrong}." in " ".join(output.split())


def test_documents_of_one_id_stay_together_and_are_counted(tmp_path):
    items = [{"text": f"Text {i}", "label": [], "id": i, "text_id": i % 6} for i in range(60)]
    lines(tmp_path / "a.jsonl", items)
    printed = run("convert", "doccano", tmp_path / "a.jsonl", tmp_path / "out")
    assert "Divided by chance. What has the same document id is in the same split." in printed
    splits = json.loads((tmp_path / "out" / "report.json").read_text("utf8"))["splits"]
    assert [splits[name]["document_ids"] for name in ("train", "dev", "test")] == [5, 1, 0]
    assert "of different ids 5 1 0" in printed
    assert "documents 50 10 0" in printed
    printed = run("convert", "doccano", f"train={tmp_path / 'a.jsonl'}", tmp_path / "all")
    assert "Divided by chance" not in printed


def test_documents_in_train_and_dev_are_told_of(tmp_path):
    """Each text is there once, but not each author."""
    for name, ids, shift in (("train", range(20), 0), ("dev", range(18, 28), 100)):
        items = [
            {"id": 1, "text": f"Text {i + shift}", "label": [[0, 4, "A"]], "text_id": f"author {i}"}
            for i in ids
        ]
        lines(tmp_path / f"{name}.jsonl", items)
    run("convert", "doccano", *(tmp_path / f"{n}.jsonl" for n in ("train", "dev")), tmp_path)
    printed = run("inspect", tmp_path / "train.spacy", tmp_path / "dev.spacy")
    assert "2 of 10 documents of dev (doc_id) are in train, too." in printed
    run("convert", "doccano", f"dev={tmp_path / 'dev.jsonl'}", tmp_path / "other")
    docs = [*DocBin().from_disk(tmp_path / "other" / "dev.spacy").get_docs(spacy.blank("en").vocab)]
    DocBin(docs=docs[2:], store_user_data=True).to_disk(tmp_path / "dev.spacy")
    printed = run("inspect", tmp_path / "train.spacy", tmp_path / "dev.spacy")
    assert "are in train, too" not in printed


def test_convert_chinese_characters(tmp_path):
    path = tmp_path / "dev.txt"
    path.write_text("我 B-PER\n在 O\n北京 B-GPE\n", encoding="utf8")
    args = ("--tokens", "character", "--lang", "zh")
    run("convert", "columns", path, tmp_path / "out", *args)
    vocab = spacy.blank("zh").vocab
    (doc,) = DocBin().from_disk(tmp_path / "out" / "dev.spacy").get_docs(vocab)
    assert doc.text == "我在北京" and [token.text for token in doc] == list("我在北京")
    assert [(span.text, span.label_) for span in doc.spans["sc"]] == [
        ("我", "PER"),
        ("北京", "GPE"),
    ]


def test_convert_wrong_setting(tmp_path):
    (tmp_path / "dev.txt").write_text(COLUMNS, encoding="utf8")
    args = ("convert", "columns", tmp_path / "dev.txt", tmp_path / "out", "--set")
    assert "--set takes NAME=VALUE, not 'tags'" in run(*args, "tags", code=1)
    assert "No setting 'tag' for this format" in run(*args, "tag=1", code=1)
    assert not (tmp_path / "out").exists()


def test_export_and_convert_again(tmp_path):
    run("convert", "genia", SAMPLE, tmp_path / "a")
    for name in ("papers-json", "mrc-json"):
        exported = tmp_path / f"{name}-train.json"
        data = tmp_path / "a" / "train.spacy"
        output = run("export", name, data, exported, "--questions", "genia")
        assert "Wrote 185 sentences" in output
        run("convert", name, exported, tmp_path / name)
        reports = [
            json.loads((tmp_path / folder / "report.json").read_text("utf8"))["splits"]["train"]
            for folder in ("a", name)
        ]
        for report in reports:
            del report["dropped"]
        ids = [report.pop("document_ids") for report in reports]
        assert ids == [18, 18 if name == "papers-json" else 185]  # BERT-MRC names no documents
        assert reports[0] == reports[1]
    question = json.loads(exported.read_text("utf8"))[0]["query"]
    assert question.startswith("Which genes, promoters")
    assert "has no question" not in output


def test_export_names_labels_without_a_question(trained, tmp_path):
    docs = DocBin().from_disk(trained / "gold.spacy").get_docs(spacy.blank("en").vocab)
    foreign = []
    for doc in docs:
        doc.spans["sc"] = [Span(doc, s.start, s.end, "WORK_OF_ART") for s in doc.spans["sc"]]
        foreign.append(doc)
    DocBin(docs=foreign).to_disk(tmp_path / "foreign.spacy")
    args = ("export", "mrc-json", tmp_path / "foreign.spacy", tmp_path / "out.json")
    output = run(*args, "--questions", "genia")
    assert "genia has no question for: WORK_OF_ART" in output and "work of art" in output
    assert "has no question" not in run(*args)


@pytest.mark.parametrize(
    "name, key, problem",
    [
        ("nowhere.spacy", "sc", "no such file"),
        ("gold.spacy", "nest", "no spans under 'nest'. Its spans keys: 'sc'"),
        ("damaged.spacy", "sc", "is not a .spacy file (DocBin) or is damaged"),
    ],
)
def test_export_bad_files(trained, tmp_path, name, key, problem):
    out = tmp_path / "out.json"
    output = run("export", "papers-json", trained / name, out, "--spans-key", key, code=1)
    assert problem in output and not out.exists()


def test_export_leaves_out_docs_without_annotation(trained, tmp_path):
    docs = list(DocBin().from_disk(trained / "gold.spacy").get_docs(spacy.blank("en").vocab))
    del docs[1].spans["sc"]
    DocBin(docs=docs).to_disk(tmp_path / "some.spacy")
    output = run("export", "papers-json", tmp_path / "some.spacy", tmp_path / "out.json")
    assert "1 docs without annotation are left out" in output
    assert len(json.loads((tmp_path / "out.json").read_text("utf8"))) == len(docs) - 1


def test_convert_warns_of_a_corpus_without_entities(tmp_path):
    (tmp_path / "db.jsonl").write_text('{"text": "Rome won."}\n' * 3, encoding="utf8")
    args = ("convert", "prodigy", tmp_path / "db.jsonl", tmp_path / "out")
    assert "The corpus has no entities. Is 'prodigy' its format?" in run(*args)


@pytest.mark.parametrize("name", ["my_test", "dev_team"])
def test_convert_tells_why_there_is_nothing_to_train_on(tmp_path, name):
    path = tmp_path / f"{name}.jsonl"
    path.write_text('{"text": "Rome", "label": [[0, 4, "GPE"]]}\n' * 3, encoding="utf8")
    output = run("convert", "doccano", path, tmp_path / "out")
    assert "The name of a file or folder says where it belongs." in output and "--resplit" in output
    output = run("convert", "doccano", f"test={path}", tmp_path / "named")
    assert "The name of a file" not in output


def test_convert_unknown_language(tmp_path):
    run("convert", "genia", SAMPLE, tmp_path / "out", "--lang", "xx-none", code=1)
    assert not (tmp_path / "out").exists()


OWN_CODE = """
from spacy.language import Language

NAME = "own_component_of_a_test"


@Language.component(NAME)
def own(doc):
    return doc
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A pipeline on disk that finds two nested entities by rules, gold data for it, and files that
    are no data."""
    folder = tmp_path_factory.mktemp("trained")
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc"})
    ruler.add_patterns([{"label": "DNA", "pattern": "IL-2 gene"}, {"label": "RNA", "pattern": "x"}])
    nlp.to_disk(folder / "model-best")
    doc_bin = DocBin()
    for text in ["The IL-2 gene is active.", "Nothing here.", "Another IL-2 gene."] * 3:
        doc = nlp.make_doc(text)
        start = [token.text for token in doc].index("IL-2") if "IL-2" in text else None
        doc.spans["sc"] = []
        if start is not None:
            gold = [(start, start + 2, "DNA"), (start, start + 1, "protein")]
            doc.spans["sc"] = [Span(doc, a, b, label=label) for a, b, label in gold]
        doc_bin.add(doc)
    doc_bin.to_disk(folder / "gold.spacy")
    content = (folder / "gold.spacy").read_bytes()
    (folder / "damaged.spacy").write_bytes(content[: len(content) // 2])
    (folder / "gold.json").write_text("[]", encoding="utf8")
    return folder


def test_visualize(trained, tmp_path):
    page = tmp_path / "new" / "page.html"
    output = run("visualize", trained / "model-best", trained / "gold.spacy", page, "--limit", 4)
    assert output.replace(" ", "").endswith(str(page.resolve()))
    data = page_data(page)
    assert [doc["n_right"] for doc in data["docs"]] == [1, 1, 1, 1]
    assert data["labels"] == ["DNA", "protein"]
    title = f"span_ruler ({trained.name}/model-best) on gold.spacy"
    assert f"<h1>{title}</h1>" in page.read_text("utf8")


@ODD_NAMES
def test_visualize_a_file_whose_name_is_not_utf8(trained, tmp_path):
    data = tmp_path / os.fsdecode(b"a\xff.spacy")
    shutil.copy(trained / "gold.spacy", data)
    run("visualize", trained / "model-best", data, tmp_path / "page.html")
    assert r"a\udcff.spacy" in (tmp_path / "page.html").read_text("utf8")


def test_visualize_says_that_nothing_is_predicted(trained, tmp_path):
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc"})
    ruler.add_patterns([{"label": "DNA", "pattern": "nowhere"}])
    nlp.to_disk(tmp_path / "model")
    page = tmp_path / "page.html"
    output = run("visualize", tmp_path / "model", trained / "gold.spacy", page)
    assert "The pipeline predicts no entity at all, although there are 12" in output
    assert page_data(page)["remark"] in output


@pytest.mark.parametrize("command", ["evaluate", "visualize"])
def test_a_pipeline_with_other_labels_that_finds_nothing(trained, tmp_path, command):
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "sc"})
    ruler.add_patterns([{"label": "ORG", "pattern": "nowhere"}])
    nlp.to_disk(tmp_path / "model")
    page = (tmp_path / "page.html",) if command == "visualize" else ()
    output = run(command, tmp_path / "model", trained / "gold.spacy", *page)
    said = "None of the labels of the pipeline (ORG) occurs in the gold data (DNA, protein)"
    assert said in output and "Train it longer" not in output
    assert not page or page_data(*page)["remark"].startswith(said)


def test_visualize_shows_scores_of_the_evaluation(trained, tmp_path):
    scores = tmp_path / "scores.json"
    scores.write_text('{"nested_p": 0.5, "nested_r": 0.25, "nested_f": 0.333}', encoding="utf8")
    page = tmp_path / "page.html"
    args = ("visualize", trained / "model-best", trained / "gold.spacy", page)
    run(*args, "--scores", scores)
    assert page_data(page)["corpus"] == {"p": "50.0", "r": "25.0", "f": "33.3"}
    run("evaluate", trained / "model-best", trained / "gold.spacy", "-o", scores)
    run(*args, "--scores", scores)
    assert page_data(page)["corpus"] == {"p": "100.0", "r": "50.0", "f": "66.7"}
    assert "evaluate again" not in run(*args, "--scores", scores)
    (tmp_path / "other.spacy").write_bytes((trained / "gold.spacy").read_bytes())
    printed = run(*args[:2], tmp_path / "other.spacy", page, "--scores", scores)
    assert f"has scores of {trained / 'model-best'} on {trained / 'gold.spacy'}." in printed
    printed = run(*args, "--scores", scores, "--spans-key", "nest", code=1)
    assert "has scores of 1 pipelines under 'sc'" in printed
    scores.write_text("{}", encoding="utf8")
    assert "neither nested_f nor spans_sc_f" in run(*args, "--scores", scores, code=1)


def test_visualize_names_the_known_keys(trained, tmp_path):
    page = tmp_path / "page.html"
    args = (trained / "model-best", trained / "gold.spacy", page, "--spans-key", "nest")
    output = run("visualize", *args, code=1)
    assert "'nest'" in output and "The docs have: 'sc'. Choose with --spans-key." in output
    assert not page.exists()


def test_visualize_says_under_which_key_the_pipeline_predicts(trained, tmp_path):
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("span_ruler", config={"spans_key": "other"})
    ruler.add_patterns([{"label": "DNA", "pattern": "gene"}])
    nlp.to_disk(tmp_path / "model")
    output = run(
        "visualize", tmp_path / "model", trained / "gold.spacy", tmp_path / "p.html", code=1
    )
    assert "predicts nothing under spans key 'sc'; it uses: 'other'" in output


@pytest.mark.parametrize(
    "model, data, problem",
    [
        ("nowhere", "gold.spacy", "no trained pipeline there"),
        ("nowhere", "nowhere.spacy", "nowhere.spacy: no such file"),
        ("model-best", "nowhere.spacy", "no such file"),
        ("model-best", "damaged.spacy", "not a .spacy file (DocBin) or is damaged"),
        ("model-best", "gold.json", "is not a .spacy file"),
    ],
)
def test_visualize_bad_files(trained, tmp_path, model, data, problem):
    page = tmp_path / "page.html"
    output = run("visualize", trained / model, trained / data, page, code=1)
    assert problem in output
    assert (data if model == "model-best" else model) in output
    assert not page.exists()


def damaged(path: Path, **parts) -> bytes:
    """A `.spacy` file with other parts."""
    message = srsly.msgpack_loads(zlib.decompress(path.read_bytes()))
    return zlib.compress(srsly.msgpack_dumps({**message, **parts}))


TEXT = "The IL-2 gene is active . Nothing here Another DNA"
DAMAGES = {
    "strings are missing": lambda path: damaged(path, strings=[]),
    "a label is missing": lambda path: damaged(path, strings=TEXT.split()),
    "truncated": lambda path: path.read_bytes()[:-9],
    "empty": lambda path: b"",
    "text": lambda path: b"[]\n",
    "not msgpack": lambda path: zlib.compress(b"\xc1\xc1"),
    "another object": lambda path: zlib.compress(srsly.msgpack_dumps(["x"])),
    "other columns": lambda path: damaged(path, attrs=[65, 66]),
}


@pytest.mark.parametrize(
    "command, damage",
    [
        *(("export", damage) for damage in DAMAGES),
        *((each, "a label is missing") for each in ("inspect", "evaluate", "visualize")),
        ("threshold", "truncated"),
    ],
)
def test_a_damaged_file_is_named(trained, tmp_path, command, damage):
    data = tmp_path / "odd.spacy"
    data.write_bytes(DAMAGES[damage](trained / "gold.spacy"))
    model, out = trained / "model-best", tmp_path / "out.json"
    args = {
        "inspect": [data, "-o", out],
        "export": ["papers-json", data, out],
        "evaluate": [model, data, "-o", out],
        "visualize": [model, data, out],
        "threshold": [model, data],
    }
    output = run(command, *args[command], code=1)
    assert f"{data} is not a .spacy file (DocBin) or is damaged. Convert" in output
    assert not out.exists()


def test_a_folder_of_files_is_data(trained, tmp_path):
    """As for `spacy train`: each doc counts once, in whatever file it is."""
    gold, parts = trained / "gold.spacy", tmp_path / "parts"
    assert "without .spacy files" in run("evaluate", trained / "model-best", tmp_path, code=1)
    docs = list(DocBin().from_disk(gold).get_docs(spacy.blank("en").vocab))
    (parts / "below").mkdir(parents=True)
    DocBin(docs=docs[:3]).to_disk(parts / "a.spacy")
    DocBin(docs=docs[3:]).to_disk(parts / "below" / "b.spacy")
    (parts / "notes.txt").write_text("not read", encoding="utf8")
    found = []
    for i, data in enumerate((gold, parts)):
        run("evaluate", trained / "model-best", data, "-o", tmp_path / f"{i}.json")
        report = srsly.read_json(tmp_path / f"{i}.json")
        found.append(report["pipelines"][0]["strict"])
    assert found[0] == found[1]
    run("inspect", parts)
    (parts / "a.spacy").write_bytes(b"no docs")
    output = run("inspect", parts, code=1)
    assert f"{parts / 'a.spacy'} is not a .spacy file" in output


def test_code_of_ones_own_is_imported(trained, tmp_path):
    """Where it must be missing, or come to workers, in a process of its own: here it is known."""
    code, model, texts = (tmp_path / name for name in ("own.py", "model", "texts.txt"))
    code.write_text(OWN_CODE, encoding="utf8")
    spec = spacy.util.import_file("own_code_of_a_test", code)
    nlp = spacy.load(trained / "model-best")
    nlp.add_pipe(spec.NAME)
    nlp.to_disk(model)
    texts.write_text("the US Supreme Court\n", encoding="utf8")

    def called(*args) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "spacy", "nested-ner", *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True, encoding="utf8")

    failed = called("evaluate", model, trained / "gold.spacy")
    assert failed.returncode == 1 and "--code" in " ".join(failed.stdout.split())
    done = called("annotate", model, texts, tmp_path / "out", "--code", code)
    assert done.returncode == 0, done.stdout + done.stderr
    done = called("evaluate", model, trained / "gold.spacy", "--code", code)
    assert done.returncode == 0, done.stdout + done.stderr
    run("evaluate", model, trained / "gold.spacy", "--code", tmp_path / "none.py", code=1)


def test_a_pipe_is_no_data(trained, tmp_path):
    os.mkfifo(tmp_path / "pipe.spacy")
    output = run("evaluate", trained / "model-best", tmp_path / "pipe.spacy", code=1)
    assert "is not a regular file" in output


@pytest.mark.parametrize("name", ["meta.json", "config.cfg", "vocab/strings.json"])
def test_a_damaged_pipeline_is_named(trained, tmp_path, name):
    model = tmp_path / "model"
    shutil.copytree(trained / "model-best", model)
    (model / name).write_text("[", encoding="utf8")
    output = run("evaluate", model, trained / "gold.spacy", code=1)
    assert f"{model / name} cannot be read: " in output


@pytest.mark.parametrize(
    "scores, problem",
    [
        ("1", "is not what `nested-ner evaluate` or"),
        ('"nested_f"', "is not what `nested-ner evaluate` or"),
        ("[", "scores.json: "),
        ('{"nested_f": 0.5}', "is not what `nested-ner evaluate` or"),
        ('{"nested_f": "x", "nested_p": 1, "nested_r": 1}', "is not what `nested-ner evaluate` or"),
        ('{"nested_f": 50, "nested_p": 1, "nested_r": 1}', "nested_f is 50, not a number from 0"),
        ('{"pipelines": []}', "is not what `nested-ner evaluate` or"),
        ('{"pipelines": [1], "data": {"spans_key": "sc"}}', "is not what `nested-ner evaluate` or"),
    ],
)
def test_scores_of_another_form(trained, tmp_path, scores, problem):
    path = tmp_path / "scores.json"
    path.write_text(scores, encoding="utf8")
    args = (trained / "model-best", trained / "gold.spacy", tmp_path / "page.html")
    output = run("visualize", *args, "--scores", path, code=1)
    assert str(path) in output and problem in output


def test_where_one_file_cannot_be_replaced_nothing_is_written(tmp_path):
    run("convert", "genia", SAMPLE, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    del before["dev.spacy"]
    (tmp_path / "dev.spacy").unlink()
    (tmp_path / "dev.spacy").mkdir()
    output = run("convert", "genia", SAMPLE, tmp_path, "--spans-key", "other", code=1)
    assert "Nothing was written" in output and "dev.spacy is a folder" in output
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_data_of_a_killed_conversion_is_completed_before_it_is_read(trained, tmp_path):
    """As it lies there when the process dies between the old files and the new ones."""
    draft = tmp_path / ".spacy_nested_ner-0123456789abcdef"
    (draft / "new").mkdir(parents=True)
    (draft / "old").mkdir()
    (draft / "lock").touch()
    shutil.copy(trained / "gold.spacy", draft / "new" / "train.spacy")
    run("inspect", tmp_path / "train.spacy")
    assert [path.name for path in tmp_path.iterdir()] == ["train.spacy"]


def fail(error):
    raise error


LACKING = {
    "torch": lambda: torch.empty(10**15),
    "numpy": lambda: np.empty(10**15),
    "a file": lambda: fail(RuntimeError("unable to mmap: Cannot allocate memory (12)")),
    "a GPU": lambda: fail(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")),
}


@pytest.mark.parametrize("make", LACKING.values(), ids=LACKING.keys())
def test_too_little_memory_is_said(trained, monkeypatch, make):
    monkeypatch.setattr("spacy_nested_ner.cli.evaluate.read_gold", lambda *_: make())
    output = run("evaluate", trained / "model-best", trained / "gold.spacy", code=1)
    assert re.search("There is not enough memory. .*allocate", output, re.S)


def test_a_module_of_spacy_that_is_no_language(trained):
    output = run("inspect", trained / "gold.spacy", "--lang", "en.syntax_iterators", code=1)
    assert "spaCy has no language 'en.syntax_iterators'" in output


@pytest.mark.parametrize(
    "place, what",
    [*(("spacy.load", what) for what in LACKING), ("spacy.tokens.DocBin.from_disk", "numpy")],
)
def test_too_little_memory_to_load_is_said(trained, monkeypatch, place, what):
    monkeypatch.setattr(place, lambda *_, **__: LACKING[what]())
    output = run("evaluate", trained / "model-best", trained / "gold.spacy", code=1)
    assert "There is not enough memory." in output and "again" not in output


@pytest.mark.parametrize(
    "command", ["evaluate", "inspect", "visualize", "threshold", "analyze", "export"]
)
def test_what_data_are_is_told_of(trained, tmp_path, command):
    data, model, out = tmp_path / "corpus", trained / "model-best", tmp_path / "out.json"
    nlp = spacy.blank("en")
    docs = list(DocBin().from_disk(trained / "gold.spacy").get_docs(nlp.vocab))
    docs[0].spans["sc"].attrs["weights"] = [1.0] * len(docs[0].spans["sc"])
    data.mkdir()
    for name in ("train", "dev"):
        DocBin(docs=docs).to_disk(data / f"{name}.spacy")
    args = {
        "inspect": [data],
        "visualize": [model, data, out],
        "analyze": [model, data, out],
        "export": ["papers-json", data, out],
    }.get(command, [model, data])
    output = run(command, *args, code=int(command == "threshold"))  # rules have no threshold
    # In the order of the folder.
    assert re.search(r"contains train\.spacy, dev\.spacy; all are read together", output)
    assert f"In 2 of {2 * len(docs)} docs of" in output or command == "threshold"


def test_what_a_teacher_is_not_sure_of_is_not_exported(trained, tmp_path):
    nlp = spacy.blank("en")
    doc = nlp("The IL-2 gene is active.")
    doc.spans["sc"] = [Span(doc, 1, 3, "DNA"), Span(doc, 1, 2, "RNA")]
    doc.spans["sc"].attrs["weights"] = [0.5, 0.4]
    DocBin(docs=[doc]).to_disk(tmp_path / "taught.spacy")
    args = ("export", "papers-json", tmp_path / "taught.spacy", tmp_path / "out.json")
    assert "Those with a weight from 0.5 on are exported" in run(*args)
    (sentence,) = srsly.read_json(tmp_path / "out.json")
    assert [each["type"] for each in sentence["entities"]] == ["DNA"]
    doc.spans["sc"].attrs["weights"] = [0.5]
    DocBin(docs=[doc]).to_disk(tmp_path / "taught.spacy")
    output = run(*args, code=1)
    assert f"{tmp_path / 'taught.spacy'}: " in output and "weights" in output


def test_the_seed_chooses_docs(trained, tmp_path, monkeypatch):
    def stop(gold, *args):
        raise ValueError(f"chosen by {args}")

    monkeypatch.setattr("spacy_nested_ner.evaluation.page.page.choose_examples", stop)
    args = (trained / "model-best", trained / "gold.spacy", tmp_path / "p.html")
    printed = run("visualize", *args, "--limit", 4, "--seed", 5, code=1)
    assert "chosen by (4, 'sc', 5)" in printed


def test_an_input_is_not_replaced_by_the_report(tmp_path):
    path = tmp_path / "report.json"
    task = {"id": 1, "data": {"text": "T cells"}, "annotations": [{"id": 1, "result": []}]}
    path.write_text(json.dumps([task]), encoding="utf8")
    before = path.read_bytes()
    output = run("convert", "label-studio", f"train={path}", tmp_path, code=1)
    assert "is to be read and to be written" in output and path.read_bytes() == before


@ODD_NAMES
def test_a_corpus_whose_name_is_not_utf8(tmp_path):
    path = tmp_path / os.fsdecode(b"train\xff.txt")
    path.write_text("a B-X\n\nb B-X\nc I-Y\n", encoding="utf8")
    run("convert", "columns", path, tmp_path / "out", "--set", "scheme=BIO", "--skip-errors")
    report = srsly.read_json(tmp_path / "out" / "report.json")
    assert report["source"] == r"train\udcff.txt"
    assert r"train\udcff.txt, line 4" in report["first_skipped_errors"][0]


def test_an_input_is_not_taken_for_the_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        lines(tmp_path / f"{name}.jsonl", [{"text": "IL-2 rose.", "label": [[0, 4, "A"]]}])
    output = run("convert", "doccano", "train=a.jsonl", "dev=b.jsonl", code=1)
    assert "The folder to write is missing: dev=b.jsonl is an input." in output


def test_options_of_the_division_and_of_texts(tmp_path):
    (tmp_path / "train.txt").write_text(COLUMNS * 10, encoding="utf8")
    args = ("columns", tmp_path / "train.txt", tmp_path / "a")
    assert "documents 16 2 2" in run("convert", *args, "--resplit", "--split-seed", 7)
    assert json.loads((tmp_path / "a" / "report.json").read_text("utf8"))["split_seed"] == 7
    item = {"text": "IL-2 rose. It fell.", "label": [[0, 4, "A"], [0, 4, "B"]]}
    lines(tmp_path / "b.jsonl", [item])
    args = ("convert", "doccano", f"train={tmp_path / 'b.jsonl'}", tmp_path / "b")
    assert "documents 1 0 0" in run(*args)
    assert "documents 2 0 0" in run(*args, "--sentences", "rules")
    assert " entities 2 0 0" in run(*args, "--all-labels")
    assert " entities 1 0 0" in run(*args, "--one-label")


def test_a_page_of_a_pipeline_that_drops_docs(trained, tmp_path):
    nlp = spacy.load(trained / "model-best")
    nlp.add_pipe("tests_drops_nothing_here")
    nlp.to_disk(tmp_path / "model")
    args = (tmp_path / "model", trained / "gold.spacy", tmp_path / "page.html")
    assert "a component drops docs" in run("visualize", *args, code=1)


@Language.factory("tests_drops_nothing_here")
class Drops:
    def __init__(self, nlp, name) -> None: ...

    def __call__(self, doc):
        return doc

    def pipe(self, stream, batch_size):
        return (doc for doc in stream if "Nothing here" not in doc.text)
