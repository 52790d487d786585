"""`piqn_ner` under the commands of spaCy's own command line."""

import io
import os
import shlex
import signal
import warnings
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import spacy
import srsly
from spacy.cli.find_threshold import find_threshold
from spacy.language import Language
from spacy.training import Example
from spacy.training.loop import train as train_loop
from spacy.util import fix_random_seed, load_config, load_model_from_config, registry
from thinc.api import Config

from spacy_nested_ner.model.head_model import head_shim
from tests.conftest import make_example, make_examples, scores_of, spans_of
from tests.integration.conftest import LISTENER, docs_of, run_spacy, untrained


def weights(nlp: Language, name: str) -> List[bytes]:
    """All weights of a component's model, Thinc's and torch's."""
    found = []
    for node in nlp.get_pipe(name).model.walk():
        found += [node.get_param(key).tobytes() for key in node.param_names]
        found += [shim.to_bytes() for shim in node.shims]
    assert any(found)
    return found


def assert_same_spans(nlp: Language, other: Language) -> None:
    """Both find the same in the ten sentences, and they find something."""
    got, expected = list(nlp.pipe(docs_of(nlp))), list(other.pipe(docs_of(other)))
    assert [spans_of(doc) for doc in got] == [spans_of(doc) for doc in expected]
    for a, b in zip(got, expected):
        assert scores_of(a) == pytest.approx(scores_of(b), abs=1e-5)
    assert sum(len(doc.spans["sc"]) for doc in got) > 20


def log_rows(path: Path) -> List[Dict[str, Any]]:
    return list(srsly.read_jsonl(path))


# init ----------------------------------------------------------------------------------------


def test_fill_config_completes_a_config_that_only_names_the_factory(tmp_path) -> None:
    (tmp_path / "base.cfg").write_text(
        '[nlp]\nlang = "en"\npipeline = ["ner"]\n'
        '[components]\n[components.ner]\nfactory = "piqn_ner"\n',
        encoding="utf8",
    )
    run_spacy("init", "fill-config", tmp_path / "base.cfg", tmp_path / "full.cfg")
    run_spacy("init", "fill-config", tmp_path / "full.cfg", tmp_path / "again.cfg")
    full = Config().from_disk(tmp_path / "full.cfg")
    component = full["components"]["ner"]
    assert (tmp_path / "full.cfg").read_text() == (tmp_path / "again.cfg").read_text()
    defaults = Language.get_factory_meta("piqn_ner").default_config
    assert set(component) == {"factory", *defaults}
    assert component["spans_key"] == "sc" and component["threshold"] == 0.5
    assert component["model"]["@architectures"] == "spacy_nested_ner.PIQN.v1"
    english = "spacy_nested_ner.EnglishCNN.v1"
    assert component["model"]["tok2vec"]["@architectures"] == english
    assert component["model"]["query_source"] == "words"  # a default of the architecture
    assert full["training"]["score_weights"] == {"nested_f": 1.0, "nested_p": 0.0, "nested_r": 0.0}


def test_init_labels_and_a_config_that_reads_them(write_config, tmp_path) -> None:
    run_spacy("init", "labels", write_config(), tmp_path / "labels")
    labels_path = tmp_path / "labels" / "piqn_ner.json"
    labels = srsly.read_json(labels_path)
    assert sorted(labels) == ["CELL", "DNA", "GPE", "ORG", "PER", "PROT"]
    srsly.write_json(labels_path, [*reversed(labels), "NEW"])
    reader = {"@readers": "spacy.read_labels.v1", "path": str(labels_path)}
    with_labels = write_config(
        "labels.cfg", initialize__components={"piqn_ner": {"labels": reader}}
    )
    assert untrained(with_labels).get_pipe("piqn_ner").labels == (*reversed(labels), "NEW")


# train ---------------------------------------------------------------------------------------


def test_train_with_accumulated_gradients_reaches_full_score(write_config, tmp_path) -> None:
    logger = {"@loggers": "spacy.ConsoleLogger.v3", "output_file": str(tmp_path / "log.jsonl")}
    config = write_config(training__accumulate_gradient=2, training__logger=logger)
    run_spacy("train", config, "--output", tmp_path)
    rows = log_rows(tmp_path / "log.jsonl")
    assert rows[0]["score"] < 0.5 and rows[-1]["score"] == 1.0
    assert rows[-1]["scores"]["nested_f"] == 100.0  # the column of the table, in percent
    nlp = spacy.load(tmp_path / "model-best")
    assert nlp.meta["performance"]["nested_f"] == 1.0
    assert nlp.evaluate(make_examples(nlp))["nested_f"] == 1.0


def test_gradients_of_two_updates_without_a_step_add_up(write_config) -> None:
    nlp = untrained(write_config())
    before = weights(nlp, "piqn_ner"), weights(nlp, "tok2vec")
    halves = make_examples(nlp)[:5], make_examples(nlp)[5:]
    apart = []
    for half in halves:
        fix_random_seed(0)  # the candidates of the classifier are drawn
        nlp.update(half, sgd=False)
        apart.append(_gradients(nlp))
        _forget_gradients(nlp)
    for half in halves:
        fix_random_seed(0)
        nlp.update(half, sgd=False)
    assert (weights(nlp, "piqn_ner"), weights(nlp, "tok2vec")) == before
    for together, first, second in zip(_gradients(nlp), *apart):
        np.testing.assert_allclose(together, first + second, atol=1e-5)
    assert any(np.abs(gradient).max() > 1e-3 for gradient in _gradients(nlp))


def _head(nlp: Language) -> Any:
    return head_shim(nlp.get_pipe("piqn_ner").model).module


def _gradients(nlp: Language) -> List[np.ndarray]:
    of_head = [p.grad.numpy().copy() for p in _head(nlp).parameters() if p.grad is not None]
    nodes = nlp.get_pipe("tok2vec").model.walk()
    return of_head + [n.get_grad(g).copy() for n in nodes for g in n.grad_names if n.has_grad(g)]


def _forget_gradients(nlp: Language) -> None:
    _head(nlp).zero_grad()
    for node in nlp.get_pipe("tok2vec").model.walk():
        for name in node.grad_names:
            node.set_grad(name, np.zeros_like(node.get_grad(name)))


@pytest.mark.parametrize(
    ("encoder_rate", "head_rate", "still"), [(0.0, 0.003, "tok2vec"), (0.003, 0.0, "piqn_ner")]
)
def test_two_learning_rates(write_config, tmp_path, encoder_rate, head_rate, still) -> None:
    """A part whose rate is 0 keeps the weights it began with; the other one moves."""
    optimizer = {
        "@optimizers": "spacy_nested_ner.AdamW.v1",
        "learn_rate": encoder_rate,
        "head_learn_rate": {
            "@schedules": "warmup_linear.v1",
            "initial_rate": head_rate,
            "warmup_steps": 2,
            "total_steps": 100,
        },
    }
    settings = {"training__optimizer": optimizer, "training__max_steps": 4}
    config = write_config(training__eval_frequency=4, **settings)
    run_spacy("train", config, "--output", tmp_path)
    begun, nlp = untrained(config), spacy.load(tmp_path / "model-last")
    for name in ("tok2vec", "piqn_ner"):
        assert (weights(begun, name) == weights(nlp, name)) == (name == still)


def test_own_optimizer_learns(write_config, tmp_path) -> None:
    optimizer = {
        "@optimizers": "spacy_nested_ner.AdamW.v1",
        "learn_rate": 0.001,
        "head_learn_rate": 0.003,
    }
    run_spacy("train", write_config(training__optimizer=optimizer), "--output", tmp_path)
    assert spacy.load(tmp_path / "model-best").meta["performance"]["nested_f"] == 1.0


# use -----------------------------------------------------------------------------------------


def test_evaluate_writes_the_scores(model_path, corpus, tmp_path) -> None:
    run_spacy("evaluate", model_path, corpus, "--output", tmp_path / "metrics.json")
    metrics = srsly.read_json(tmp_path / "metrics.json")
    assert metrics["nested_f"] == metrics["spans_sc_f"] == 1.0
    per_type = {"CELL", "DNA", "GPE", "ORG", "PER", "PROT"}
    assert set(metrics["nested_per_type"]) == set(metrics["spans_sc_per_type"]) == per_type


def test_find_threshold_finds_the_best(write_config, corpus, tmp_path) -> None:
    config = write_config(training__max_steps=10, training__eval_frequency=10)
    run_spacy("train", config, "--output", tmp_path)
    model = tmp_path / "model-last"
    table = run_spacy("find-threshold", model, corpus, "piqn_ner", "threshold", "nested_f", "-n", 5)
    found = find_threshold(str(model), corpus, "piqn_ner", "threshold", "nested_f", n_trials=5)
    best, score, scores = found
    assert len(set(scores.values())) >= 3 and scores[1.0] == 0.0
    assert score == max(scores.values()) == scores[best] > scores[0.5]
    assert f"Best threshold: {round(best, ndigits=4)}" in table
    nlp = spacy.load(model)
    nlp.get_pipe("piqn_ner").cfg["threshold"] = float(best)
    assert nlp.evaluate(make_examples(nlp))["nested_f"] == score


def test_benchmark_speed(model_path, corpus) -> None:
    settings = ("--batches", 30, "--batch-size", 2, "--warmup", 0)
    output = run_spacy("benchmark", "speed", model_path, corpus, *settings)
    assert float(output.split("Mean: ")[1].split(" words/s")[0]) > 0


def test_debug_model_with_listener_and_own_encoder(write_config) -> None:
    own = {"@architectures": "spacy.HashEmbedCNN.v2", **dict(_own_encoder())}
    steps = ("-P0", "-P1", "-P2", "-P3", "-DIM", "-PAR", "-GRAD", "-ATTR")
    for settings in ({}, {"components__piqn_ner__model__tok2vec": own}):
        output = run_spacy("debug", "model", write_config(**settings), "piqn_ner", *steps)
        assert "Initialized the model with the training corpus" in output
        assert "model looks good" in output and "ScoredSpans" in output


def _own_encoder() -> Dict[str, Any]:
    return {
        "pretrained_vectors": None,
        "width": 16,
        "depth": 1,
        "embed_size": 100,
        "window_size": 1,
        "maxout_pieces": 2,
        "subword_features": True,
    }


def test_debug_config_shows_our_functions_and_refuses_unknown_settings(write_config) -> None:
    # The logger of spaCy's own default config is one that --show-functions cannot find.
    config = write_config(training__logger={"@loggers": "spacy.ConsoleLogger.v3"})
    output = run_spacy("debug", "config", config, "--show-functions")
    flat = " ".join(output.split())
    assert "spacy_nested_ner.PIQN.v1" in flat and "spacy_nested_ner.model.architectures" in flat
    wrong = ("--components.piqn_ner.treshold", 0.5)
    assert "treshold" in run_spacy("debug", "config", config, *wrong, code=1)


# source, freeze, assemble --------------------------------------------------------------------


def sourced(model_path: Path, *names: str, **settings: Any) -> Dict[str, Any]:
    return {name: {"source": str(model_path), **settings} for name in names}


def test_assemble_a_sourced_component(model_path, tmp_path) -> None:
    names = ["tok2vec", "piqn_ner"]
    config = Config(
        {"nlp": {"lang": "en", "pipeline": names}, "components": sourced(model_path, *names)}
    )
    config.to_disk(tmp_path / "config.cfg")
    run_spacy("assemble", tmp_path / "config.cfg", tmp_path / "assembled")
    assert_same_spans(spacy.load(tmp_path / "assembled"), spacy.load(model_path))


def test_assemble_with_replaced_listeners_needs_no_tok2vec(model_path, tmp_path) -> None:
    components = sourced(model_path, "piqn_ner", replace_listeners=["model.tok2vec"])
    config = Config({"nlp": {"lang": "en", "pipeline": ["piqn_ner"]}, "components": components})
    config.to_disk(tmp_path / "config.cfg")
    run_spacy("assemble", tmp_path / "config.cfg", tmp_path / "assembled")
    nlp = spacy.load(tmp_path / "assembled")
    assert nlp.pipe_names == ["piqn_ner"]
    assert_same_spans(nlp, spacy.load(model_path))
    replaced = nlp.config["components"]["piqn_ner"]["model"]["tok2vec"]
    assert replaced["@architectures"] == "spacy.HashEmbedCNN.v2"


def test_a_frozen_encoder_stays_while_a_new_head_learns(write_config, model_path, tmp_path) -> None:
    config = write_config(
        components__tok2vec={"source": str(model_path)},
        training__frozen_components=["tok2vec"],
        training__annotating_components=["tok2vec"],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        run_spacy("train", config, "--output", tmp_path)
    nlp, source = spacy.load(tmp_path / "model-best"), spacy.load(model_path)
    assert weights(nlp, "tok2vec") == weights(source, "tok2vec")
    assert weights(nlp, "piqn_ner") != weights(source, "piqn_ner")
    assert nlp.evaluate(make_examples(nlp))["nested_f"] == 1.0


def test_a_frozen_component_stays_bit_identical(write_config, model_path, tmp_path) -> None:
    """Beside a component that is trained, with its own copy of the encoder."""
    frozen = {"source": str(model_path), "replace_listeners": ["model.tok2vec"]}
    config = write_config(
        nlp__pipeline=["tok2vec", "piqn_ner", "textcat"],
        components__piqn_ner=frozen,
        components__textcat={"factory": "textcat"},
        training__frozen_components=["piqn_ner"],
        training__max_steps=6,
        training__eval_frequency=6,
    )
    run_spacy("train", config, "--output", tmp_path)
    begun, nlp = untrained(config), spacy.load(tmp_path / "model-last")
    assert weights(nlp, "piqn_ner") == weights(begun, "piqn_ner")
    assert weights(nlp, "textcat") != weights(begun, "textcat")
    assert_same_spans(nlp, spacy.load(model_path))


def test_a_sourced_component_is_trained_on_without_a_new_start(
    write_config, model_path, tmp_path
) -> None:
    """`spacy train` resumes a sourced component: its score, 0 for a new one, is nearly full after
    the first step, before which spaCy does not score, and stays so."""
    logger = {"@loggers": "spacy.ConsoleLogger.v3", "output_file": str(tmp_path / "log.jsonl")}
    config = write_config(
        components=sourced(model_path, "tok2vec", "piqn_ner"),
        training__logger=logger,
        training__max_steps=4,
        training__eval_frequency=2,
    )
    run_spacy("train", config, "--output", tmp_path)
    rows = log_rows(tmp_path / "log.jsonl")
    assert rows[0]["score"] > 0.8 and rows[-1]["score"] > 0.95 and len(rows) >= 2
    trained_on, before = spacy.load(tmp_path / "model-last"), spacy.load(model_path)
    assert weights(trained_on, "piqn_ner") != weights(before, "piqn_ner")


def with_money(nlp: Language) -> List[Example]:
    return [*make_examples(nlp), make_example(nlp, "five euros", [(0, 2, "MONEY")])]


def ctrl_c() -> None:
    raise KeyboardInterrupt


def sigterm() -> None:
    assert callable(signal.getsignal(signal.SIGTERM))  # it would end all tests
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(("end", "step"), [(ctrl_c, 0), (ctrl_c, 45), (sigterm, 45)])
def test_an_interrupted_training_goes_on_as_it_says(write_config, tmp_path, end, step) -> None:
    """In a step, after a save or before the first one."""
    if end is sigterm and os.name != "posix":
        pytest.skip("Windows ends the process at once")
    steps = iter(range(1000))

    def interrupt(nlp: Language, args: Dict[str, Any]) -> None:
        if next(steps) == step:
            end()

    registry.callbacks("test_interrupt", func=lambda: interrupt)
    ours = {
        "training__before_to_disk": {"@callbacks": "spacy_nested_ner.fit_threshold.v1"},
        "training__logger": {"@loggers": "spacy_nested_ner.ConsoleLogger.v1"},
    }
    config = write_config(**ours, training__before_update={"@callbacks": "test_interrupt"})
    out, folder = io.StringIO(), tmp_path / "it's here"
    folder.mkdir()
    with pytest.raises(SystemExit if end is sigterm else KeyboardInterrupt):
        train_loop(untrained(config), folder, stdout=out)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    last = spacy.load(folder / "model-last")
    assert f"Interrupted after {step} steps" in out.getvalue()
    assert ("To continue from" in out.getvalue()) == (step > 0)
    if step:
        assert last.meta["thresholds"]["piqn_ner"]["f"] > 0
        again = shlex.split(out.getvalue().splitlines()[-1])
        config = write_config(**ours, training__max_steps=20)
        run_spacy("train", config, "--output", tmp_path / "on", *again)
        nlp = spacy.load(tmp_path / "on" / "model-best")
        before = last.evaluate(make_examples(last))["nested_f"]
        assert nlp.evaluate(make_examples(nlp))["nested_f"] >= before > 0.5


def test_source_into_another_pipeline_and_resume_training(model_path) -> None:
    source = spacy.load(model_path)
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", source=source)
    pipe = nlp.add_pipe("piqn_ner", source=source)
    assert_same_spans(nlp, source)
    assert pipe.add_label("MONEY") == 1
    optimizer = nlp.resume_training()
    optimizer.learn_rate = 0.003
    first = nlp.update(with_money(nlp), sgd=optimizer)["piqn_ner"]
    for _ in range(40):
        last = nlp.update(with_money(nlp), sgd=optimizer)["piqn_ner"]
    assert last < first
    assert nlp.evaluate(with_money(nlp))["nested_f"] == 1.0


def test_listener_config_survives_a_second_load(model_path) -> None:
    """The saved config builds the same pipeline again, listener included."""
    config = load_config(model_path / "config.cfg")
    assert config["components"]["piqn_ner"]["model"]["tok2vec"] == LISTENER
    nlp = load_model_from_config(config).from_disk(model_path)
    assert_same_spans(nlp, spacy.load(model_path))
    assert nlp.config["components"] == config["components"]
