"""What `spacy train` saves and says with the shipped configs."""

from __future__ import annotations

import io
import json
import shlex
import warnings
from pathlib import Path
from typing import Any, List, Optional, Tuple

import pytest
import spacy
from spacy import util
from spacy.language import Language
from spacy.tokens import DocBin
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as train_loop

from spacy_nested_ner.evaluation import callbacks
from spacy_nested_ner.evaluation.callbacks import (
    _how_to_go_on,
    make_console_logger,
    make_fit_threshold,
)
from spacy_nested_ner.evaluation.scores.fit_thresholds import NOTHING_RIGHT
from spacy_nested_ner.pipeline.component import NestedNER
from spacy_nested_ner.training.budget import LINEAR_OVER_TIME, limit_time
from tests.conftest import make_examples, make_pipeline, train

CONFIGS = Path(__file__).parents[2] / "configs"


SMALL = {
    "components.ner.model.tok2vec.width": 32,
    "components.ner.model.tok2vec.embed_size": 200,
}


def saved_docs(path: Path, key: str = "sc") -> str:
    docs = [eg.reference for eg in make_examples(spacy.blank("en"), key)]
    DocBin(docs=docs).to_disk(path)
    return str(path)


def trained(
    folder: Path, config: str, dev_key: str = "sc", source: Any = None, **settings: Any
) -> Tuple[Any, str]:
    """A shipped config after a training on the ten sentences; what was printed. source: block of
    the component in its place."""
    overrides = {
        "paths.train": saved_docs(folder / "train.spacy"),
        "paths.dev": saved_docs(folder / "dev.spacy", dev_key),
        **({"components.ner": source} if source else SMALL),
        **{f"training.{name}": value for name, value in settings.items()},
    }
    out = io.StringIO()
    nlp = init_nlp(util.load_config(CONFIGS / f"{config}.cfg", overrides=overrides))
    (folder / "out").mkdir()
    train_loop(nlp, folder / "out", stdout=out)
    return nlp, " ".join(out.getvalue().split())


def test_saved_pipelines_have_the_threshold_that_is_best_on_dev(tmp_path) -> None:
    nlp, printed = trained(tmp_path, "locate_and_label_cnn", max_steps=60)
    assert nlp.get_pipe("ner").cfg["threshold"] == 0.5
    for name in ("model-best", "model-last"):
        saved = spacy.load(tmp_path / "out" / name)
        fit = saved.meta["thresholds"]["ner"]
        assert saved.get_pipe("ner").cfg["threshold"] == fit["threshold"]
        scores = saved.evaluate(make_examples(saved))
        assert scores["nested_f"] == pytest.approx(fit["f"]) and fit["f"] >= fit["old_f"]
    assert "model-best: step 60" in printed  # the last one
    assert f"'ner': threshold {fit['threshold']:g}" in printed
    assert "⚠" not in printed


def test_training_ends_in_its_warm_up(tmp_path) -> None:
    rate = {"@schedules": "warmup_linear.v1", "warmup_steps": 200}
    rates = {f"optimizer.learn_rate.{name}": value for name, value in rate.items()}
    _, printed = trained(tmp_path, "piqn_cnn", max_steps=3, **rates)
    assert "Training ended at step 3, while the learning rate was still rising" in printed
    assert "warmup_steps" in printed and "--training.max_steps" in printed


def test_labels_without_gold_in_a_training_are_told_of(tmp_path) -> None:
    nlp = train(make_pipeline("locate_and_label_ner"), 10)
    nlp.get_pipe("ner").add_label("MONEY")
    nlp.to_disk(tmp_path / "known")
    source = {"source": str(tmp_path / "known")}
    _, printed = trained(tmp_path, "locate_and_label_cnn", source=source, max_steps=6)
    assert "'ner': in 6 steps it has learned from no entity with the labels MONEY." in printed


def test_a_training_without_entities_unlearns_all(tmp_path) -> None:
    nlp = train(make_pipeline("locate_and_label_ner"), 10)
    examples = make_examples(nlp)
    assert nlp.get_pipe("ner").unpractised == []
    nlp.to_disk(tmp_path / "known")
    known = spacy.load(tmp_path / "known")
    assert known.get_pipe("ner").unpractised == []
    for eg in examples:
        eg.reference.spans["sc"] = []
    known.update(examples, sgd=known.resume_training())
    assert known.get_pipe("ner").unpractised == list(known.get_pipe("ner").labels)


def test_max_epochs_end_training(tmp_path) -> None:
    _, printed = trained(tmp_path, "piqn_cnn", max_epochs=3)
    assert "max_epochs ended the training at step 2 of 2500." in printed
    assert "--training.max_steps 2 or more, and --training.max_epochs 0." in printed
    assert printed.count("⚠") == 1
    assert "Train longer" not in printed and "warmup_steps" not in printed


def test_dev_without_entities_keeps_the_threshold(tmp_path) -> None:
    with pytest.warns(UserWarning, match="'ner': its threshold is kept: the data has no entity"):
        _, printed = trained(tmp_path, "piqn_cnn", dev_key="other", max_steps=2)
    assert spacy.load(tmp_path / "out" / "model-last").get_pipe("ner").cfg["threshold"] == 0.5
    assert "The score is 0: the dev data has no entity under the key of a component." in printed
    assert "Train longer" not in printed


def run_logger(
    nlp: Language,
    scores: List[float],
    unscored: int = 0,
    output: Optional[str] = "out",
    error: Optional[BaseException] = None,
    **settings: Any,
) -> str:
    """unscored: steps after the last score. error: what ends the training."""
    out = io.StringIO()
    log_step, finalize = make_console_logger(progress_bar=None, **settings)(nlp, out, out)
    for step, score in enumerate(scores):
        other = {"nested_f": score, "nested_p": score, "nested_r": score}
        info = {"epoch": 0, "step": step, "score": score, "other_scores": other}
        losses = dict.fromkeys(nlp.pipe_names, 1.0)
        log_step({**info, "losses": losses, "output_path": output})
    for _ in range(unscored):
        log_step(None)
    try:
        if error is not None:
            raise error
    except BaseException:
        finalize()  # as spaCy does
    else:
        finalize()
    return " ".join(out.getvalue().split())


def test_patience_ends_training() -> None:
    nlp = make_pipeline("piqn_ner")
    rate = {"@schedules": "warmup_linear.v1"}
    rate = {**rate, "initial_rate": 0.1, "warmup_steps": 50, "total_steps": 100}
    nlp.config["training"].update(patience=2, max_steps=100)
    nlp.config["training"]["optimizer"]["learn_rate"] = rate
    printed = run_logger(nlp, [0.0, 0.0, 0.0])
    assert "patience ended the training at step 2 of 100." in printed
    assert "--training.patience 0." in printed and printed.count("⚠") == 1
    assert "⚠" not in run_logger(nlp, [0.1, 0.5, 0.2, 0.5])
    nlp.config["training"].update(patience=0)
    assert "still rising" in run_logger(nlp, [0.1, 0.5, 0.2, 0.3])


def test_nothing_found_in_the_time() -> None:
    nlp = make_pipeline("piqn_ner")
    assert "Train longer (--training.max_steps)" in run_logger(nlp, [0.0, 0.0])
    limit_time(nlp.config["training"], minutes=1)
    printed = run_logger(nlp, [0.0, 0.0])
    assert "Train longer (--training.batcher.minutes)" in printed and "max_steps" not in printed
    rate = {"@schedules": "warmup_linear.v1", "initial_rate": 0.1}
    by_steps = {**rate, "warmup_steps": 50, "total_steps": 100}
    by_time = {"@schedules": LINEAR_OVER_TIME, "initial_rate": 0.1, "warmup": 0.5}
    up_and_down = {"@schedules": "cyclic_triangular.v1", "min_lr": 0.0, "max_lr": 0.1, "period": 2}
    for rate, rising in ((by_steps, True), (by_time, False), (up_and_down, False)):
        nlp.config["training"]["optimizer"]["learn_rate"] = rate
        assert ("still rising" in run_logger(nlp, [0.1, 0.2, 0.3])) == rising


def test_best_model_of_step_0() -> None:
    nlp = make_pipeline("piqn_ner")
    printed = run_logger(nlp, [0.3, 0.2, 0.1])
    assert "model-best is from step 0 of 2" in printed and "--training.eval_freq" in printed
    printed = run_logger(nlp, [0.1, 0.2, 0.2])
    assert "model-best: step 2, score 0.20" in printed and "step 0 of" not in printed
    with pytest.raises(ValueError, match="progress_bar"):
        make_console_logger(progress_bar="all")


def test_a_training_of_which_only_step_0_was_scored() -> None:
    nlp = make_pipeline("piqn_ner")
    for first in (0.0, 0.3):
        printed = run_logger(nlp, [first], unscored=60)
        assert "Only step 0 was scored, and the training ended at step 60" in printed
        assert "--training.eval_frequency to 60 or less" in printed and printed.count("⚠") == 1


def test_a_training_that_an_error_ended_has_no_advice() -> None:
    printed = run_logger(make_pipeline("piqn_ner"), [0.0, 0.0], error=ValueError("mine"))
    assert "model-best: step" in printed and "⚠" not in printed


def test_interrupted_without_output() -> None:
    nlp = make_pipeline("piqn_ner")
    printed = run_logger(nlp, [0.0, 0.2], output=None, error=KeyboardInterrupt())
    assert "Best: step 1, score 0.20" in printed and "model-best" not in printed
    assert "Interrupted after 2 steps. There was no --output: nothing was saved" in printed


def test_nothing_on_the_console(tmp_path) -> None:
    file = tmp_path / "log.jsonl"
    nlp = make_pipeline("piqn_ner")
    printed = run_logger(nlp, [0.0, 0.2], output_file=file, console_output=False)
    assert not any(word in printed for word in ("SCORE", "Best", "model-best"))
    assert len(file.read_text("utf8").splitlines()) == 2


def test_ents_that_the_dev_data_lack() -> None:
    nlp = make_pipeline("piqn_ner", set_ents="outermost")
    nlp.config["training"]["score_weights"]["ents_f"] = 1.0
    assert "for ents_f, the dev data need entities in doc.ents" in run_logger(nlp, [0.1, 0.2])


def test_failing_to_choose_does_not_end_training(tmp_path) -> None:
    """The last thing that `spacy train` does is to save; what it learned must not be lost."""
    nlp = train(make_pipeline("locate_and_label_ner"), 2)  # its config has no dev data
    with pytest.warns(
        UserWarning, match="its threshold is kept: choosing it failed: .*Corpus path"
    ):
        make_fit_threshold()(nlp).to_disk(tmp_path / "saved")
    assert spacy.load(tmp_path / "saved").get_pipe("ner").cfg["threshold"] == 0.5


def test_a_save_that_fails_leaves_the_last_one_whole(tmp_path, monkeypatch) -> None:
    nlp = train(make_pipeline("piqn_ner"), 2)
    save = make_fit_threshold()
    with pytest.warns(UserWarning):
        save(nlp).to_disk(tmp_path / "model-last")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(self: Any, path: Any, *, exclude: Any = ()) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NestedNER, "to_disk", full)
    nlp.meta["name"] = "other"
    with pytest.raises(OSError, match="No space"):
        save(train(nlp, 1)).to_disk(tmp_path / "model-last")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_interrupted_training_is_saved_without_another_prediction(tmp_path) -> None:
    nlp = train(make_pipeline("locate_and_label_ner"), 2)
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        make_fit_threshold()(nlp).to_disk(tmp_path / "saved")  # with one it would warn
    assert spacy.load(tmp_path / "saved").meta["thresholds"] == {}


def test_a_lower_threshold_finds_what_training_did_not() -> None:
    nlp = make_pipeline("piqn_ner")
    fit = {"threshold": 0.3, "f": 0.4, "old_threshold": 0.8, "old_f": 0.0}
    nlp.meta["thresholds"] = {"ner": fit}
    printed = run_logger(nlp, [0.0, 0.0])
    assert "no right entity in the dev data reaches the threshold of the config" in printed
    assert "nested-ner inspect" not in printed


@pytest.mark.parametrize("frozen", [False, True])
def test_a_component_that_finds_nothing_beside_one_that_does(tmp_path, frozen) -> None:
    nlp = train(make_pipeline("locate_and_label_ner"), 60)
    pipe = nlp.add_pipe("spancat", "idle", config={"spans_key": "sc2", "threshold": 0.9})
    examples = make_examples(nlp)
    for eg in examples:
        eg.reference.spans["sc2"] = list(eg.reference.spans["sc"])
    pipe.initialize(lambda: examples)
    pipe.cfg["max_positive"] = 0  # shows nothing
    DocBin(docs=[eg.reference for eg in examples]).to_disk(tmp_path / "dev.spacy")
    config = nlp.config
    for part in ("train", "dev"):
        config["corpora"][part]["path"] = str(tmp_path / "dev.spacy")
    config["training"]["frozen_components"] = ["idle"] if frozen else []
    nlp.config = config
    make_fit_threshold()(nlp).to_disk(tmp_path / "saved")
    assert set(nlp.meta["thresholds"]) == {"ner"}
    told = "'idle': it finds no right entity at any threshold; train it longer, and check its data"
    printed = run_logger(nlp, [0.5, 0.9])
    assert (f"{told} with `nested-ner inspect --spans-key sc2`" in printed) == (not frozen)
    assert frozen == ("finds no right entity" not in printed)


def test_a_score_that_no_component_gives() -> None:
    """As with the scorer of another factory, which a config keeps where the factory is changed."""
    nlp = make_pipeline("piqn_ner")
    nlp.config["training"]["score_weights"] = {"nested_f": 0.5, "ents_f": 0.5, "tag_acc": 0}
    printed = run_logger(nlp, [0.2, 0.3])
    assert "names ents_f, but no component computes this" in printed and printed.count("⚠") == 1
    nlp.config["training"]["score_weights"] = {"spans_sc_f": 1.0}
    printed = run_logger(nlp, [0.0, 0.0])
    assert "names spans_sc_f, but no component" in printed and "Train longer" not in printed


def test_no_colours_where_no_terminal_is() -> None:
    assert "\x1b" not in run_logger(make_pipeline("piqn_ner"), [0.3, 0.2])


def test_a_frozen_component_keeps_its_threshold(tmp_path) -> None:
    nlp = train(make_pipeline("locate_and_label_ner"), 60)
    path = saved_docs(tmp_path / "data.spacy")
    for frozen, thresholds in (([], {"ner"}), (["ner"], set())):
        config = nlp.config
        for part in ("train", "dev"):
            config["corpora"][part]["path"] = path
        config["training"]["frozen_components"] = frozen
        nlp.config = config
        nlp.get_pipe("ner").cfg["threshold"] = 0.99
        make_fit_threshold()(nlp).to_disk(tmp_path / "saved")
        saved = spacy.load(tmp_path / "saved")
        assert set(saved.meta["thresholds"]) == thresholds
        assert (saved.get_pipe("ner").cfg["threshold"] == 0.99) == bool(frozen)


@pytest.mark.parametrize("path", [r"training\mine\model-last", 'a "b"/it\'s/model-last'])
def test_a_folder_to_go_on_from_is_json(path: str) -> None:
    option, source = shlex.split(_how_to_go_on(make_pipeline(), path, True).splitlines()[-1])
    assert option == "--components.ner"
    assert json.loads(source) == {"source": Path(path).as_posix()}


def test_how_to_go_on_in_windows(monkeypatch) -> None:
    """Outside of double quotes and in them, Windows takes \\" for a quote."""
    monkeypatch.setattr(callbacks, "IN_CMD_EXE", True)
    said = _how_to_go_on(make_pipeline(), "mine/model-last", True)
    assert said.endswith(r"--components.ner {\"source\":\"mine/model-last\"}")
    said = _how_to_go_on(make_pipeline(), "my own/model-last", True)
    assert said.endswith(r'--components.ner "{\"source\":\"my own/model-last\"}"')


def test_a_pipeline_that_is_saved_twice_is_predicted_on_once(monkeypatch) -> None:
    calls: List[float] = []
    reasons = iter([NOTHING_RIGHT, "mine", "mine"])

    def fit_on_dev(nlp: Language, beta: float):
        calls.append(beta)
        return {}, {"ner": next(reasons)}

    monkeypatch.setattr(callbacks, "_fit_on_dev", fit_on_dev)
    nlp, save = make_pipeline("piqn_ner"), make_fit_threshold(beta=2.0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for label in ("", "", "MONEY", "LAW"):
            if label:
                nlp.get_pipe("ner").add_label(label)
            save(nlp)
    assert calls == [2.0] * 3 and [str(each.message).count("mine") for each in told] == [1]


def test_the_rate_of_the_head_is_still_rising() -> None:
    nlp = make_pipeline("piqn_ner")
    rate = {"@schedules": "warmup_linear.v1", "initial_rate": 0.1}
    rate.update(warmup_steps=50, total_steps=100)
    nlp.config["training"]["optimizer"].update(learn_rate=0.001, head_learn_rate=rate)
    assert "[training.optimizer.head_learn_rate]" in run_logger(nlp, [0.1, 0.2, 0.3])
