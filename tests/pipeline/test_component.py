"""What every system must do as a component of a pipeline."""

import gc
import pickle
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import numpy as np
import pytest
import spacy
import srsly
import torch
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.vectors import Vectors
from spacy.vocab import Vocab
from thinc.api import Config

from spacy_nested_ner.model import head_model
from spacy_nested_ner.model.head_model import head_shim
from spacy_nested_ner.model.types import system_of
from spacy_nested_ner.pipeline import component
from spacy_nested_ner.pipeline.factories import MODEL
from spacy_nested_ner.training.optimizer import AdamW
from spacy_nested_ner.training.schedules import warmup_linear
from tests.conftest import (
    NOT_FORKED,
    QUESTIONS,
    SENTENCES,
    SMALL_CNN,
    make_example,
    make_examples,
    make_optimizer,
    make_pipeline,
    memorise,
    scores_of,
    spans_of,
    train,
)


def texts(nlp) -> List[Doc]:
    return [eg.x.copy() for eg in make_examples(nlp)]


def assert_same(got: List[Doc], expected: List[Doc], tolerance: float = 1e-5) -> None:
    assert [spans_of(doc) for doc in got] == [spans_of(doc) for doc in expected]
    for a, b in zip(got, expected):
        assert scores_of(a) == pytest.approx(scores_of(b), abs=tolerance)


def test_disk_round_trip(trained, tmp_path) -> None:
    trained.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert loaded.evaluate(make_examples(loaded))["nested_f"] == 1.0
    assert_same(list(loaded.pipe(texts(loaded))), list(trained.pipe(texts(trained))))


def test_bytes_round_trip(trained) -> None:
    loaded = spacy.blank("en", config=trained.config).from_bytes(trained.to_bytes())
    assert loaded.evaluate(make_examples(loaded))["nested_f"] == 1.0
    assert_same(list(loaded.pipe(texts(loaded))), list(trained.pipe(texts(trained))))


def test_pickle(trained) -> None:
    loaded = pickle.loads(pickle.dumps(trained))
    assert_same(list(loaded.pipe(texts(loaded))), list(trained.pipe(texts(trained))))


def test_weights_are_saved_without_pickle(trained, tmp_path) -> None:
    trained.to_disk(tmp_path)
    saved = (tmp_path / "ner" / "model").read_bytes()
    assert b"torch._utils" not in saved and b"cnumpy" not in saved
    for name in head_shim(trained.get_pipe("ner").model).module.state_dict():
        assert name.encode() in saved


def test_batch_order_and_size_do_not_matter(trained) -> None:
    alone = [trained(doc) for doc in texts(trained)]
    assert sum(len(doc.spans["sc"]) for doc in alone) > 20
    for size in (1, 3, 64):
        assert_same(list(trained.pipe(texts(trained), batch_size=size)), alone)
    turned = list(trained.pipe(reversed(texts(trained)), batch_size=4))
    assert_same(turned[::-1], alone)


def test_padding_beside_a_long_doc_does_not_matter(trained) -> None:
    long = Doc(trained.vocab, words=["word"] * 90)
    alone = [trained(doc) for doc in texts(trained)]
    beside = list(trained.pipe([*texts(trained), long]))[:-1]
    assert_same(beside, alone)


def test_scores_are_float32_and_always_there(trained) -> None:
    for doc in trained.pipe(texts(trained)):
        scores = doc.spans["sc"].attrs["scores"]
        assert scores.dtype == np.float32 and scores.shape == (len(doc.spans["sc"]),)
        assert ((scores >= 0.5) & (scores <= 1)).all()


@pytest.mark.parametrize("words", [[], [" "], ["\n\n", " "], ["p53"]])
def test_tiny_docs(trained, words) -> None:
    doc = trained(Doc(trained.vocab, words=words))
    assert doc.spans["sc"].attrs["scores"].shape == (len(doc.spans["sc"]),)
    assert (len(doc.spans["sc"]) > 0) == (words == ["p53"])


def test_batch_of_empty_whitespace_and_long_docs(trained) -> None:
    shapes = [[], [" "], ["p53"], ["IL-2"] * 20_000]
    docs = list(trained.pipe([Doc(trained.vocab, words=words) for words in shapes]))
    assert [len(doc) for doc in docs] == [0, 1, 1, 20_000]
    assert spans_of(docs[2]) == spans_of(trained(Doc(trained.vocab, words=["p53"])))


def test_long_doc_is_read_to_its_end(trained, monkeypatch) -> None:
    """The sentence that was learned is found at the end of a doc of many windows, the last of
    which holds it and nothing else."""
    monkeypatch.setitem(trained.get_pipe("ner").cfg, "window", 6)
    monkeypatch.setitem(trained.get_pipe("ner").cfg, "stride", 6)
    text, entities = SENTENCES[0]
    filler = SENTENCES[4][0].split(" ") * 80
    doc = trained(Doc(trained.vocab, words=filler + text.split(" ")))
    found = {(s - len(filler), e - len(filler), label) for s, e, label in spans_of(doc)}
    assert set(entities) & found


def test_20_000_tokens_have_the_spans_of_their_sentences(trained) -> None:
    """The ten sentences again and again: every encoder sees the same around a sentence in the
    midst of the long doc as in the midst of three rounds."""
    words = [word for text, _ in SENTENCES for word in text.split(" ")]
    starts = [i == 0 for text, _ in SENTENCES for i in range(len(text.split(" ")))]
    size, rounds = len(words), 20_000 // len(words) + 1
    few, many = (
        trained(Doc(trained.vocab, words=words * n, sent_starts=starts * n)) for n in (3, rounds)
    )
    assert len(many) > 20_000

    def per_round(doc: Doc) -> List[tuple]:
        grouped: List[tuple] = [([], []) for _ in range(len(doc) // size)]
        for (start, end, label), score in zip(spans_of(doc), scores_of(doc)):
            spans, scores = grouped[start // size]
            spans.append((start % size, end - start, label))
            scores.append(score)
        return grouped

    expected, scores = per_round(few)[1]
    assert len(expected) > 10
    for spans, found_scores in per_round(many)[1:-1]:
        assert spans == expected and found_scores == pytest.approx(scores, abs=1e-5)


def test_batch_words_can_be_set_on_a_trained_pipe(trained, tmp_path, monkeypatch) -> None:
    """A dial for memory: how many words the head sees at once, spans are the same."""
    monkeypatch.setattr(head_model, "ON_GPU", 1)
    expected = list(trained.pipe(texts(trained)))
    trained.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    pipe = loaded.get_pipe("ner")
    seen: List[int] = []
    head = head_shim(pipe.model).module
    head.register_forward_pre_hook(lambda module, args: seen.append(args[1].numel()))
    assert_same(list(loaded.pipe(texts(loaded))), expected)
    usual = len(seen)
    pipe.model.attrs["batch_words"] = 20
    seen.clear()
    assert_same(list(loaded.pipe(texts(loaded))), expected)
    assert len(seen) > max(3, usual) and max(seen) <= 20
    loaded.to_disk(tmp_path / "tuned")
    assert spacy.load(tmp_path / "tuned").get_pipe("ner").model.attrs["batch_words"] == 20


def fail_on(word: str, nlp: Language, monkeypatch) -> None:
    """Docs with this word cannot be predicted."""
    pipe = nlp.get_pipe("ner")
    predict = pipe.predict

    def fail(docs: Any) -> Any:
        if any(word in doc.text for doc in docs):
            raise RuntimeError(word)
        return predict(docs)

    monkeypatch.setattr(pipe, "predict", fail)


def survivors(pipe: Any, docs: List[Doc], batch_size: int) -> Tuple[List[Doc], List[str]]:
    """The docs that come out of a pipeline or pipe, and the texts of those that failed."""
    failed: List[str] = []
    pipe.set_error_handler(lambda name, proc, docs, error: failed.extend(d.text for d in docs))
    try:
        return list(pipe.pipe(docs, batch_size=batch_size)), failed
    finally:
        pipe.set_error_handler(spacy.util.raise_error)


def test_the_whole_pipeline_keeps_the_neighbours_of_a_failing_doc(trained, monkeypatch) -> None:
    """With the error handler that spaCy documents for it, through `nlp.pipe`."""
    expected = list(trained.pipe(texts(trained)))
    fail_on("Oslo", trained, monkeypatch)
    done, failed = survivors(trained, texts(trained), batch_size=4)
    assert len(failed) == 1 and "Oslo" in failed[0]
    assert_same(done, [doc for doc in expected if "Oslo" not in doc.text])


def test_settings_of_one_call() -> None:
    nlp = make_pipeline(threshold=0.0)
    pipe, text = nlp.get_pipe("ner"), SENTENCES[0][0]
    strict: Any = {"ner": {"threshold": 1.0}}
    assert len(nlp(text).spans["sc"])
    assert not len(nlp(text, component_cfg=strict).spans["sc"])
    assert not any(len(doc.spans["sc"]) for doc in nlp.pipe([text], component_cfg=strict))
    assert pipe.cfg["threshold"] == 0.0 and len(nlp(text).spans["sc"])
    with pytest.raises(ValueError, match=r"'ner': labels cannot be set for one call.*threshold"):
        pipe(nlp.make_doc(text), labels=["X"])


@pytest.mark.parametrize("n_process", [1, pytest.param(2, marks=NOT_FORKED)])
def test_processes(trained, n_process) -> None:
    words = [text for text, _ in SENTENCES]
    expected = list(trained.pipe(words))
    assert_same(list(trained.pipe(words, n_process=n_process, batch_size=3)), expected)


def test_an_error_in_one_doc_costs_no_neighbour(trained, monkeypatch) -> None:
    fail_on("p53", trained, monkeypatch)
    done, failed = survivors(trained.get_pipe("ner"), texts(trained), batch_size=10)
    assert [text.strip() for text in failed] == ["p53"]
    assert len(done) == len(SENTENCES) - 1 and all("sc" in doc.spans for doc in done)


def test_labels_from_data_given_or_added() -> None:
    nlp = make_pipeline()
    assert set(nlp.get_pipe("ner").labels) == {"ORG", "GPE", "DNA", "PROT", "CELL", "PER"}
    nlp = make_pipeline(examples=None)
    nlp.get_pipe("ner").add_label("ORG")
    nlp.initialize()
    assert nlp.get_pipe("ner").labels == ("ORG",)
    nlp = make_pipeline(examples=None)
    data = make_examples(nlp)
    nlp.get_pipe("ner").initialize(lambda: data, nlp=nlp, labels=["GPE", "ORG"])
    assert nlp.get_pipe("ner").label_data == ["GPE", "ORG"]
    with pytest.raises(ValueError, match="E187"):
        nlp.get_pipe("ner").add_label(3)


def drop_label(docs, label: str) -> None:
    for doc in docs:
        group = doc.spans["sc"]
        kept = [i for i, span in enumerate(group) if span.label_ != label]
        scores = group.attrs["scores"][kept]
        doc.spans["sc"] = [group[i] for i in kept]
        doc.spans["sc"].attrs["scores"] = scores


def test_a_grown_head_keeps_what_it_learned_and_learns_more(make) -> None:
    nlp = memorise(make(), 240)
    before = list(nlp.pipe(texts(nlp)))
    assert nlp.get_pipe("ner").add_label("MONEY") == 1
    assert nlp.get_pipe("ner").add_label("MONEY") == 0
    after = list(nlp.pipe(texts(nlp)))
    if system_of(nlp.get_pipe("ner").model).name == "mrc":  # a new label is asked for at once
        drop_label(after, "MONEY")
    assert_same(after, before, tolerance=0.02)

    def with_money(nlp):
        return [*make_examples(nlp), make_example(nlp, "five euros", [(0, 2, "MONEY")])]

    memorise(nlp, 200, with_money)


def test_growing_between_updates_with_one_optimizer(make) -> None:
    nlp = make()
    optimizer = nlp.create_optimizer()
    nlp.update(make_examples(nlp), sgd=optimizer)
    nlp.get_pipe("ner").add_label("NEW")
    losses = [nlp.update(make_examples(nlp), sgd=optimizer)["ner"] for _ in range(10)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("optimizer", ["Adam.v1", "spacy_nested_ner.AdamW.v1"])
def test_training_does_not_pile_up_objects(make, optimizer) -> None:
    nlp = make()
    sgd = spacy.registry.get("optimizers", optimizer)(learn_rate=0.001)
    counts = []
    gc.freeze()  # what is there already is not counted
    for _ in range(3):
        for _ in range(5):
            nlp.update(make_examples(nlp), sgd=sgd)
        gc.collect()
        counts.append(len(gc.get_objects()))
    gc.unfreeze()
    n_parameters = len(list(head_shim(nlp.get_pipe("ner").model).module.parameters()))
    assert counts[2] - counts[1] < n_parameters  # each update used to leave one behind for each


def test_no_gold_trains_without_nan(make) -> None:
    nlp = make()
    empty = [make_example(nlp, text, []) for text, _ in SENTENCES]
    optimizer = nlp.create_optimizer()
    first = nlp.update(empty, sgd=optimizer)["ner"]
    for _ in range(10):
        last = nlp.update(empty, sgd=optimizer)["ner"]
    assert 0 <= last < first
    loss_of = nlp.get_pipe("ner").get_loss
    assert loss_of(empty, None)[0] < loss_of(make_examples(nlp), None)[0]


def test_docs_without_tokens_train(make) -> None:
    nlp = make()
    empty = Example(Doc(nlp.vocab, words=[]), Doc(nlp.vocab, words=[]))
    assert nlp.update([empty], sgd=nlp.create_optimizer()) == {"ner": 0.0}
    mixed = [empty, *make_examples(nlp)]
    assert nlp.update(mixed, sgd=nlp.create_optimizer())["ner"] > 0


def test_gold_under_another_key_is_an_error_that_names_the_keys() -> None:
    with pytest.raises(ValueError, match=r"'ner'.*'sc'.*'mine'"):
        make_pipeline(examples=lambda nlp: make_examples(nlp, spans_key="mine"))


def test_gold_in_ents_alone_is_named_with_the_remedy() -> None:
    def flat(nlp):
        return [Example.from_dict(nlp.make_doc("the US court"), {"entities": [(4, 6, "GPE")]})]

    with pytest.raises(
        ValueError, match=r"there are doc\.ents: set doc\.spans\['sc'\] = list\(doc\.en"
    ):
        make_pipeline(examples=flat)


def test_all_spans_dropped_by_the_reader_warn() -> None:
    """Labels from a file and `gold_preproc`: nothing else would tell."""
    nlp = make_pipeline(examples=None)
    pipe = nlp.get_pipe("ner")
    data = [Example.from_dict(nlp.make_doc(text), {}) for text, _ in SENTENCES]
    with pytest.warns(UserWarning, match="no training doc has spans.* gold_preproc to false"):
        pipe.initialize(lambda: data, nlp=nlp, labels=["GPE"])
    with pytest.raises(ValueError, match=r"'ner'.*no training doc has spans.* gold_preproc"):
        make_pipeline(examples=lambda nlp: data)
    nlp = make_pipeline(examples=None)
    nlp.get_pipe("ner").add_label("GPE")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nlp.initialize()


def test_the_loss_of_examples_is_one_and_leaves_training_alone(make) -> None:
    losses = []
    for asked in (False, True):
        nlp = make()
        pipe, data, sgd = nlp.get_pipe("ner"), make_examples(nlp), nlp.create_optimizer()
        torch.manual_seed(0)
        if asked:
            assert pipe.get_loss(data, None) == pipe.get_loss(data, None)
        losses.append([nlp.update(data, sgd=sgd)["ner"] for _ in range(2)])
    assert losses[0] == losses[1]


def test_without_weights_the_remedy_is_told(make) -> None:
    nlp = make(examples=None)
    pipe, data = nlp.get_pipe("ner"), make_examples(nlp)
    for call in (
        lambda: nlp(SENTENCES[0][0]),
        lambda: pipe.update(data),
        lambda: pipe.get_loss(data, None),
    ):
        with pytest.raises(ValueError, match=r"'ner': it has no weights yet\. Call nlp.initialize"):
            call()
    other = nlp.add_pipe("textcat")
    other.initialize(
        lambda: [Example.from_dict(data[0].x, {"cats": {"A": 1.0, "B": 0.0}})], nlp=nlp
    )
    before = other.model.to_bytes()
    pipe.initialize(lambda: data, nlp=nlp)  # as it says of a place beside trained components
    assert "sc" in nlp(SENTENCES[0][0]).spans
    assert other.model.to_bytes() == before


def test_what_was_set_by_hand_is_checked() -> None:
    nlp = make_pipeline()
    pipe, data = nlp.get_pipe("ner"), make_examples(nlp)
    pipe.cfg["labels"].reverse()
    for call in (lambda: nlp(SENTENCES[0][0]), lambda: pipe.update(data)):
        with pytest.raises(ValueError, match=r"'ner': the weights were trained for .* add_label"):
            call()
    pipe.cfg["labels"].reverse()
    for wrong in (0, 2.5, None, "x"):
        pipe.model.attrs["batch_words"] = wrong
        with pytest.raises(ValueError, match=r"'ner': model.attrs\['batch_words'\] must be"):
            nlp(SENTENCES[0][0])
    pipe.model.attrs["batch_words"] = 1
    assert len(nlp(SENTENCES[0][0]))


def test_spans_of_another_component_are_not_replaced_in_silence() -> None:
    nlp = make_pipeline()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        doc = nlp(SENTENCES[0][0])
        nlp.get_pipe("ner")(doc)  # its own
    ruler = nlp.add_pipe("span_ruler", first=True, config={"spans_key": "sc"})
    ruler.add_patterns([{"label": "A", "pattern": SENTENCES[0][0].split()[0]}])
    with pytest.warns(UserWarning, match=r"'ner': it replaces spans that were there") as caught:
        for _ in range(2):
            nlp(SENTENCES[0][0])
    assert len(caught) == 1


def test_ents_of_another_component_are_not_replaced_in_silence() -> None:
    nlp = make_pipeline(set_ents="outermost")
    ruler = nlp.add_pipe("entity_ruler", first=True)
    ruler.add_patterns([{"label": "A", "pattern": SENTENCES[0][0].split()[0]}])
    with pytest.warns(UserWarning, match=r"'ner': it replaces the doc\.ents that were") as caught:
        docs = [nlp(SENTENCES[0][0]) for _ in range(2)]
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nlp.get_pipe("ner")(docs[0])  # its own
        nlp.get_pipe("ner").cfg["set_ents"] = None
        assert [ent.label_ for ent in nlp(SENTENCES[0][0]).ents] == ["A"]


@pytest.mark.parametrize(
    "factory, architecture, problem",
    [
        (
            "proposer_regressor_ner",
            "spacy_nested_ner.PIQN.v1",
            "Use factory 'piqn_ner' or the model ",
        ),
        ("piqn_ner", "spacy_nested_ner.LocateAndLabel.v1", "Use factory 'locate_and_label_ner'"),
        ("piqn_ner", "spacy_nested_ner.EnglishCNN.v1", "got the model .* keep only its tok2vec"),
    ],
)
def test_a_model_of_another_system_is_refused(factory, architecture, problem) -> None:
    encoder: Any = Config().from_str(MODEL.format(architecture=architecture))["model"]["tok2vec"]
    model = {"@architectures": architecture, "tok2vec": encoder}
    if architecture == encoder["@architectures"]:
        model = encoder
    with pytest.raises(ValueError, match=f"'x': factory '{factory}' takes .*{problem}"):
        spacy.blank("en").add_pipe(factory, name="x", config={"model": model})


@pytest.mark.parametrize("encoder", [None, 3])
def test_what_is_no_encoder_is_named(make, encoder) -> None:
    problem = f"spacy_nested_ner.*.v1: tok2vec must be a model, got {encoder}"
    with pytest.raises(Exception, match=problem):
        make(model={"tok2vec": encoder})


def test_a_listener_of_another_width_is_named() -> None:
    nlp = listening_pipeline(width=64)
    data = make_examples(nlp)
    problem = "'ner': the encoder gives vectors of width 96, but width 64 is expected"
    for call in (lambda: nlp(SENTENCES[0][0]), lambda: nlp.update(data)):
        with pytest.raises(ValueError, match=problem):
            call()


def test_given_labels_with_another_key_warn() -> None:
    nlp = make_pipeline(examples=None)
    data = make_examples(nlp, spans_key="mine")
    with pytest.warns(UserWarning, match=r"'sc'.*'mine'"):
        nlp.get_pipe("ner").initialize(lambda: data, nlp=nlp, labels=["GPE"])


@pytest.mark.parametrize(
    "annotation",
    [{"entities": [(0, 3, "GENE")]}, {"spans": {"mine": [(0, 3, "GENE")]}}],
    ids=["doc.ents", "another key"],
)
def test_batches_annotated_elsewhere_warn_once(annotation) -> None:
    """A trained pipe would forget all it knows."""
    nlp = make_pipeline()
    data = [Example.from_dict(nlp.make_doc("p53 binds"), annotation)]
    place = "doc.ents" if "entities" in annotation else r"doc.spans\['mine'\]"
    with pytest.warns(UserWarning, match=rf"doc.spans\['sc'\], but there is {place}") as caught:
        for _ in range(2):
            nlp.update(data, sgd=nlp.create_optimizer())
    assert len(caught) == 1


def test_batches_without_entities_and_partly_annotated_ones_do_not_warn() -> None:
    nlp = make_pipeline()
    plain = Example.from_dict(nlp.make_doc("so be it"), {})
    ents = Example.from_dict(nlp.make_doc("p53 binds"), {"entities": [(0, 3, "GENE")]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nlp.update([plain], sgd=nlp.create_optimizer())
        nlp.update([ents, *make_examples(nlp)], sgd=nlp.create_optimizer())


def test_a_rate_that_stays_0_warns_once() -> None:
    nlp = make_pipeline()
    schedule = {"initial_rate": 0.1, "warmup_steps": 2, "total_steps": 4}
    sgd = AdamW(warmup_linear(**schedule), head_learn_rate=warmup_linear(**schedule))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            nlp.update(make_examples(nlp), sgd=sgd)
            sgd.step_schedules()
        nlp.update(make_examples(nlp), sgd=sgd)  # 0 once more, as at the beginning
    with pytest.warns(
        UserWarning, match="'ner'.*learning rate has been 0.*step_schedules"
    ) as caught:
        for _ in range(3):
            nlp.update(make_examples(nlp), sgd=sgd)
    assert len(caught) == 1


def test_a_frozen_encoder_does_not_count_as_standstill() -> None:
    nlp = make_pipeline()
    sgd = AdamW(0.0, head_learn_rate=0.001)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            nlp.update(make_examples(nlp), sgd=sgd)


def test_batches_end_with_many_words_too(trained, monkeypatch) -> None:
    """Long docs would need memory for all of a batch; docs come out as soon as they are read."""
    monkeypatch.setattr(component, "MOST_WORDS", 12)
    pipe, docs = trained.get_pipe("ner"), texts(trained)
    read: List[int] = []
    found = pipe.predict
    monkeypatch.setattr(pipe, "predict", lambda docs: read.append(len(docs)) or found(docs))
    lengths, sizes = [len(doc) for doc in docs], []
    taken = pipe.pipe(iter(docs), batch_size=3)
    assert_same(list(taken), [pipe(doc) for doc in texts(trained)])
    while sum(sizes) < len(docs):
        rest, n = lengths[sum(sizes) :], 1
        while n < min(3, len(rest)) and sum(rest[:n]) < 12:
            n += 1
        sizes.append(n)
    assert read[: len(sizes)] == sizes and 1 < len(sizes) < len(docs)


def test_no_labels_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="no entity under spans_key 'sc'"):
        make_pipeline(examples=lambda nlp: [make_example(nlp, "a b", [])])
    nlp = make_pipeline(examples=None)
    with pytest.raises(ValueError, match="no labels to initialize with"):
        nlp.initialize()


def test_use_before_initialize_is_an_error(make) -> None:
    nlp = make(examples=None)
    with pytest.raises(ValueError, match="initialize"):
        nlp("p53")


def test_unknown_label_is_counted_and_warned_about_once() -> None:
    nlp = make_pipeline()
    data = [make_example(nlp, "a b c", [(0, 1, "NEW"), (1, 3, "GPE")])]
    with pytest.warns(UserWarning, match=r"1 gold span.*unknown label.*add_label") as caught:
        nlp.update(data, sgd=nlp.create_optimizer())
        nlp.update(data, sgd=nlp.create_optimizer())
    assert len([w for w in caught if "unknown label" in str(w.message)]) == 1


def test_unknown_label_in_the_data_of_a_trained_pipe(trained) -> None:
    """It is told once, the pipe trains on and finds what it knew."""
    nlp = pickle.loads(pickle.dumps(trained))
    new = make_example(nlp, "five big euros", [(0, 3, "MONEY")])
    optimizer = nlp.resume_training()
    optimizer.learn_rate = 1e-4
    with pytest.warns(UserWarning, match=r"1 gold span.*unknown label.*add_label") as caught:
        for _ in range(4):
            nlp.update([*make_examples(nlp), new], sgd=optimizer, drop=0.0)
    assert len([w for w in caught if "unknown label" in str(w.message)]) == 1
    assert nlp.get_pipe("ner").labels == trained.get_pipe("ner").labels
    assert nlp.evaluate(make_examples(nlp))["nested_f"] == 1.0


def test_misaligned_gold_is_counted_and_warned_about() -> None:
    nlp = make_pipeline()
    reference = Doc(nlp.vocab, words=["IL", "-2", "gene"], spaces=[False, True, False])
    reference.spans["sc"] = [Span(reference, 0, 1, "PROT"), Span(reference, 0, 3, "DNA")]
    predicted = Doc(nlp.vocab, words=["IL-2", "gene"], spaces=[True, False])
    with pytest.warns(UserWarning, match=r"1 gold span.*misaligned"):
        nlp.update([Example(predicted, reference)], sgd=nlp.create_optimizer())


def test_gold_across_sentences_is_counted_and_warned_about() -> None:
    nlp = make_pipeline()
    reference = Doc(nlp.vocab, words=["a", "b", "c"])
    reference.spans["sc"] = [Span(reference, 0, 3, "PROT")]
    predicted = Doc(nlp.vocab, words=["a", "b", "c"], sent_starts=[True, False, True])
    with pytest.warns(UserWarning, match=r"1 gold span.*across segments"):
        nlp.update([Example(predicted, reference)], sgd=nlp.create_optimizer())


def test_crossing_and_duplicate_gold_can_be_learned(make) -> None:
    entities = [(0, 3, "A"), (2, 5, "A"), (2, 5, "A"), (2, 5, "B")]

    def crossing(nlp):
        return [make_example(nlp, "v w x y z", entities), make_example(nlp, "q r s", [])]

    nlp = train(make(examples=crossing), 120, crossing)
    doc = nlp(Doc(nlp.vocab, words=list("vwxyz")))
    assert spans_of(doc) == sorted(set(entities), key=lambda e: (e[0], -e[1], e[2]))


def test_nan_loss_stops_with_an_explanation(make) -> None:
    nlp = make()
    for node in nlp.get_pipe("ner").model.walk():
        if node.has_param("W"):
            node.set_param("W", node.get_param("W") * np.nan)
    with pytest.raises(ValueError, match=r"'ner'.*not a finite number.*learning rate"):
        nlp.update(make_examples(nlp), sgd=nlp.create_optimizer())


def test_weights_from_another_label_set_are_refused(trained, tmp_path) -> None:
    trained.to_disk(tmp_path)
    other = spacy.util.load_model_from_config(trained.config)
    other.initialize(lambda: [make_example(other, "a b", [(0, 1, "X")])])
    (tmp_path / "ner" / "model").write_bytes(other.get_pipe("ner").model.to_bytes())
    (tmp_path / "ner" / "checksums.json").unlink()
    with pytest.raises(ValueError, match=r"'ner'.*trained for the labels \['X'\]"):
        spacy.load(tmp_path)


def test_settings_tuned_on_the_pipe_are_saved(trained, tmp_path) -> None:
    trained.to_disk(tmp_path)
    tuned = spacy.load(tmp_path)
    tuned.get_pipe("ner").cfg["threshold"] = 0.25
    tuned.to_disk(tmp_path)
    assert spacy.load(tmp_path).get_pipe("ner").cfg["threshold"] == 0.25


def test_saved_settings_win_over_those_of_a_fresh_pipe(trained, tmp_path) -> None:
    trained.get_pipe("ner").to_disk(tmp_path)
    saved = srsly.read_json(tmp_path / "cfg")
    srsly.write_json(tmp_path / "cfg", {**saved, "spans_key": "mine", "threshold": 0.25})
    fresh = spacy.util.load_model_from_config(trained.config)
    pipe = fresh.get_pipe("ner").from_disk(tmp_path)
    assert (pipe.key, pipe.cfg["threshold"]) == ("mine", 0.25)


def test_nan_weights_are_reported_at_prediction(make) -> None:
    nlp = make()
    head = head_shim(nlp.get_pipe("ner").model).module
    for parameter in head.parameters():
        parameter.data.fill_(np.nan)
    with pytest.raises(ValueError, match=r"'ner'.*not finite.*diverged"):
        nlp("p53 binds")


def test_lost_gold_of_the_whole_data_is_counted_at_initialize() -> None:
    def misaligned(nlp):
        examples = make_examples(nlp)
        for _ in range(2):
            reference = Doc(nlp.vocab, words=["IL", "-2"], spaces=[False, False])
            reference.spans["sc"] = [Span(reference, 0, 1, "PROT")]
            examples.append(Example(Doc(nlp.vocab, words=["IL-2"], spaces=[False]), reference))
        return examples

    with pytest.warns(UserWarning, match=r"2 gold span\(s\) of the training data.*misaligned"):
        make_pipeline(examples=misaligned)


@pytest.mark.parametrize("factory", ["locate_and_label_ner", "piqn_ner"])
def test_a_label_is_renamed_as_the_guide_says(factory, tmp_path) -> None:
    nlp = train(make_pipeline(factory), 60)
    pipe, text = nlp.get_pipe("ner"), SENTENCES[0][0]
    before = spans_of(nlp(text))
    old = before[0][2]
    place = pipe.labels.index(old)
    pipe.cfg["labels"][place] = pipe.model.attrs["labels"][place] = "GENE"
    nlp.to_disk(tmp_path)
    renamed = [(s, e, "GENE" if label == old else label) for s, e, label in before]
    assert spans_of(spacy.load(tmp_path)(text)) == spans_of(nlp(text)) == renamed


def warnings_of(function: Callable[[], Any]) -> List[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [str(each.message) for each in caught]


def test_each_initialisation_tells_of_its_own_data() -> None:
    nlp = make_pipeline()
    bare = [Example.from_dict(nlp.make_doc("Hello"), {})]

    def initialize(more: List[Example]) -> List[str]:
        return warnings_of(lambda: nlp.initialize(lambda: [*make_examples(nlp), *more]))

    assert initialize([]) == []
    for count in (1, 3):
        (said,) = initialize(bare * count)
        assert f"{count} of {len(SENTENCES) + count} training docs have no doc.spans" in said
        assert "of them have doc.ents" not in said


def test_docs_with_other_annotation_are_told_of_beside_docs_without() -> None:
    nlp = make_pipeline()
    flat = Example.from_dict(nlp.make_doc("Bern is big"), {"entities": [(0, 4, "GPE")]})
    (said,) = warnings_of(lambda: nlp.initialize(lambda: [*make_examples(nlp), flat]))
    assert "1 of them have doc.ents: set doc.spans['sc'] = list(doc.ents)" in said
    optimizer = nlp.create_optimizer()
    assert warnings_of(lambda: nlp.update([flat], sgd=optimizer)) == []  # it was told of
    bare = Example.from_dict(nlp.make_doc("Hello"), {})
    (said,) = warnings_of(lambda: nlp.initialize(lambda: [*make_examples(nlp), bare]))
    assert "of them have doc.ents" not in said
    (said,) = warnings_of(lambda: nlp.update([flat], sgd=optimizer))
    assert "no doc of a batch has doc.spans['sc'], but there is doc.ents" in said


def test_the_first_lost_gold_is_named() -> None:
    nlp = make_pipeline()
    example = make_example(nlp, "the US court", [(1, 2, "Gpe "), (0, 2, "OTHER")])
    (said,) = warnings_of(lambda: nlp.update([example], sgd=nlp.create_optimizer()))
    assert "2 gold span(s) of this batch" in said
    assert "(unknown label; the first: 'US' as 'Gpe ' in 'the US court'): check" in said


@pytest.mark.parametrize("given", [("a", {"entities": []}), Doc(Vocab(), words=["a"])])
def test_what_is_no_example_is_refused_at_initialize(given) -> None:
    with pytest.raises(TypeError, match=r"E978.*NestedNER\.initialize"):
        make_pipeline(examples=lambda nlp: [given])


@pytest.mark.parametrize("blank", [" ", "\u200b"])
def test_empty_and_whitespace_gold_is_counted_and_trimmed(blank: str) -> None:
    nlp = make_pipeline()
    words = ["IL-2", blank, "x"]
    reference = Doc(nlp.vocab, words=words)
    reference.spans["sc"] = [
        Span(reference, 0, 0, "PROT"),
        Span(reference, 1, 2, "PROT"),
        Span(reference, 0, 2, "PROT"),
    ]
    example = Example(Doc(nlp.vocab, words=words), reference)
    with pytest.warns(UserWarning, match=r"2 gold span.*empty"):
        nlp.update([example], sgd=nlp.create_optimizer())


def test_labels_that_are_no_list_are_refused() -> None:
    pipe = make_pipeline(examples=None).get_pipe("ner")
    with pytest.raises(ValueError, match=r"'ner': labels must be a list of texts, got 'ORG'"):
        pipe.initialize(lambda: [], labels="ORG")
    assert pipe.labels == ()


def test_docs_of_other_texts_are_refused_with_the_name() -> None:
    nlp = make_pipeline(examples=None)
    data = make_examples(nlp)
    data.append(Example(nlp.make_doc("something else"), data[0].reference))
    with pytest.raises(ValueError, match=r"'ner': \[E949\]"):
        nlp.initialize(lambda: data)


def test_an_empty_list_of_labels_is_refused() -> None:
    nlp = make_pipeline(examples=None)
    data = make_examples(nlp)
    with pytest.raises(ValueError, match=r"'ner'.*empty"):
        nlp.get_pipe("ner").initialize(lambda: data, nlp=nlp, labels=[])


def test_own_spans_key_and_scores_that_do_not_depend_on_it() -> None:
    def mine(nlp):
        return make_examples(nlp, spans_key="mine")

    nlp = train(make_pipeline(examples=mine, spans_key="mine"), 60, mine)
    scores = nlp.evaluate(mine(nlp))
    assert scores["nested_f"] == scores["spans_mine_f"] == 1.0
    weights = nlp.get_pipe_meta("ner").default_score_weights
    assert weights == {"nested_f": 1.0, "nested_p": 0.0, "nested_r": 0.0}


def test_ents(trained) -> None:
    pipe = trained.get_pipe("ner")
    doc = make_examples(trained)[0].x.copy()
    found = pipe.predict([doc])
    expected = {
        "outermost": [(0, 4, "ORG"), (5, 6, "GPE")],
        "innermost": [(1, 2, "GPE"), (5, 6, "GPE")],
    }
    for policy, ents in expected.items():
        pipe.cfg["set_ents"] = policy
        try:
            pipe.set_annotations([doc], found)
        finally:
            pipe.cfg["set_ents"] = None
        assert [(e.start, e.end, e.label_) for e in doc.ents] == ents


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"overlap": "some"}, "overlap"),
        ({"set_ents": "all"}, "set_ents"),
        ({"window": 10, "stride": 20}, "stride"),
        ({"labels_per_span": 0}, "labels_per_span"),
    ],
)
def test_wrong_settings_are_refused(settings, problem) -> None:
    with pytest.raises(ValueError, match=f"'ner'.*{problem}"):
        make_pipeline(examples=None, **settings)


def listening_pipeline(factory: str = "piqn_ner", width: int = 96, **model: Any) -> Language:
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": width}
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec")  # 96 wide
    nlp.add_pipe(factory, name="ner", config={"model": {"tok2vec": listener, **model}})
    data = make_examples(nlp)
    nlp.initialize(lambda: data)
    return nlp


def test_what_stands_beside_a_listener_learns_at_the_rate_of_the_head() -> None:
    """The encoder of questions is new; what is pretrained is in the other component."""
    nlp = listening_pipeline("mrc_ner", question_tok2vec=SMALL_CNN, questions=QUESTIONS)

    def hashed(model: Any) -> np.ndarray:
        tables = (node for node in model.walk() if node.name == "hashembed")
        return np.array(next(tables).get_param("E"))

    pipe: Any = nlp.get_pipe("ner")
    shared: Any = nlp.get_pipe("tok2vec")
    before = hashed(pipe.model), hashed(shared.model)
    optimizer = AdamW(0.0, head_learn_rate=0.001)
    for _ in range(2):
        nlp.update(make_examples(nlp), sgd=optimizer)
    assert (hashed(pipe.model) != before[0]).any()
    assert (hashed(shared.model) == before[1]).all()


def test_an_encoder_that_gives_nothing_is_told_of() -> None:
    """spaCy lets a listener have zeros then, in silence."""
    nlp, other = listening_pipeline(), listening_pipeline()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nlp(SENTENCES[0][0])
        nlp("")
    alone = spacy.blank("en")
    alone.add_pipe("ner", source=other)
    problem = r"'ner': its listener \(upstream = '\*'\) gets no vectors"
    with pytest.warns(UserWarning, match=problem):
        alone(SENTENCES[0][0])
    with pytest.warns(UserWarning, match=problem), nlp.select_pipes(disable="tok2vec"):
        list(nlp.pipe(["", SENTENCES[0][0]]))


def test_errors_of_the_encoder_name_the_component(tiny_bert) -> None:
    encoder = {"@architectures": "spacy_nested_ner.SortedTransformer.v1", "name": str(tiny_bert)}
    with pytest.raises(ValueError, match=r"^Component 'ner': .*frozen_layers is 9"):
        make_pipeline(model={"tok2vec": {**encoder, "frozen_layers": 9}})


@pytest.mark.parametrize(
    ("factory", "place", "kind"),
    [
        ("locate_and_label_ner", "tok2vec", "PairEncoder"),
        ("locate_and_label_ner", "tok2vec", "QueryEncoder"),
        ("piqn_ner", "tok2vec", "PairEncoder"),
        ("mrc_ner", "tok2vec", "QueryEncoder"),
        ("mrc_ner", "question_tok2vec", "PairEncoder"),
        ("mrc_ner", "question_tok2vec", "QueryEncoder"),
        ("locate_and_label_ner", "tok2vec of a hybrid", "PairEncoder"),
        ("locate_and_label_ner", "embed of a hybrid", "QueryEncoder"),
    ],
)
def test_an_encoder_that_does_not_fit_is_named(factory, place, kind) -> None:
    encoder = {"@architectures": f"spacy_nested_ner.{kind}.v1", "name": "not read yet"}
    model: Any = {place: encoder}
    if place.endswith("hybrid"):
        hybrid = {"@architectures": "spacy_nested_ner.HybridEncoder.v1", "tok2vec": SMALL_CNN}
        model = {"tok2vec": {**hybrid, place.split()[0]: encoder}}
    with pytest.raises(ValueError, match=r"reads .*(questions|queries).*, too.*SortedTransformer"):
        make_pipeline(factory, model, examples=None)


def test_a_transformer_of_pieces_is_named() -> None:
    pytest.importorskip("spacy_transformers")
    model = {
        "@architectures": "spacy-transformers.TransformerModel.v3",
        "name": "not read yet",
        "get_spans": {"@span_getters": "spacy-transformers.doc_spans.v1"},
    }
    with pytest.raises(ValueError, match="a TransformerModel, which gives vectors of pieces"):
        make_pipeline("locate_and_label_ner", {"tok2vec": model}, examples=None)
    hybrid = {"@architectures": "spacy_nested_ner.HybridEncoder.v1", "tok2vec": SMALL_CNN}
    with pytest.raises(ValueError, match="embed is a TransformerModel"):
        config = {"tok2vec": {**hybrid, "embed": model}}
        make_pipeline("locate_and_label_ner", config, examples=None)


def test_replace_listeners_freeze_and_source(tmp_path) -> None:
    nlp = train(listening_pipeline(), 30)
    expected = list(nlp.pipe(texts(nlp)))
    sourced = spacy.blank("en")
    sourced.add_pipe("tok2vec", source=nlp)
    sourced.add_pipe("ner", source=nlp)
    assert_same(list(sourced.pipe(texts(sourced))), expected)
    nlp.replace_listeners("tok2vec", "ner", ["model.tok2vec"])
    assert_same(list(nlp.pipe(texts(nlp))), expected)
    nlp.to_disk(tmp_path)
    assert_same(list(spacy.load(tmp_path).pipe(texts(nlp))), expected)


def test_what_is_assigned_names_the_ents_that_can_be_set() -> None:
    nlp = make_pipeline(examples=None, set_ents="outermost")
    assert {"doc.spans", "doc.ents"} <= set(nlp.get_pipe_meta("ner").assigns)
    assert "ner" in nlp.analyze_pipes()["attrs"]["doc.ents"]["assigns"]


def test_spans_without_a_label_are_no_label(tmp_path) -> None:
    """Such a label could be learned and saved, but not loaded."""
    nlp = make_pipeline("piqn_ner", examples=None)
    data = make_examples(nlp)
    doc = data[0].reference
    doc.spans["sc"] = [*doc.spans["sc"], Span(doc, 0, 1)]
    with pytest.warns(UserWarning, match=r"'ner'.*1 gold span.*no label.*give each span a label"):
        nlp.initialize(lambda: data)
    assert "" not in nlp.get_pipe("ner").labels
    nlp.to_disk(tmp_path / "saved")
    assert spacy.load(tmp_path / "saved").get_pipe("ner").labels == nlp.get_pipe("ner").labels
    with pytest.raises(ValueError, match=r"'ner'.*a label must have a name"):
        nlp.get_pipe("ner").add_label("")


def test_docs_without_a_group_of_spans_are_warned_of() -> None:
    nlp = make_pipeline("piqn_ner", examples=None)
    data = make_examples(nlp)
    for eg in data[:2]:
        del eg.reference.spans["sc"]
    with pytest.warns(UserWarning, match=r"'ner'.*2 of 10 training docs .*max_length"):
        nlp.initialize(lambda: data)


def test_settings_of_one_call_count_beside_a_failing_doc_too(monkeypatch) -> None:
    nlp = make_pipeline(threshold=0.0)
    pipe: Any = nlp.get_pipe("ner")
    predict, failed = pipe.predict, []

    def fail(docs: Any, **options: Any) -> Any:
        if any("p53" in doc.text for doc in docs):
            raise RuntimeError("p53")
        return predict(docs, **options)

    monkeypatch.setattr(pipe, "predict", fail)
    pipe.set_error_handler(lambda name, proc, docs, error: failed.extend(docs))
    done = list(pipe.pipe(texts(nlp), threshold=1.0))
    assert len(failed) == 1 and len(done) == len(SENTENCES) - 1
    assert not any(len(doc.spans["sc"]) for doc in done)


def test_losses_of_several_updates_add_up() -> None:
    """As `spacy train` asks for them with accumulate_gradient."""
    nlp = make_pipeline()
    pipe: Any = nlp.get_pipe("ner")
    data, losses = make_examples(nlp), {"ner": 1000.0, "other": 7.0}
    assert pipe.update(data, losses=losses) is losses
    assert losses["ner"] > 1000.0 and losses["other"] == 7.0


def test_the_dropout_rate_of_an_update_is_taken() -> None:
    losses = []
    for rate in (0.0, 0.0, 0.9):
        nlp = make_pipeline("locate_and_label_ner")
        torch.manual_seed(0)
        losses.append(nlp.update(make_examples(nlp), drop=rate)["ner"])
    assert losses[0] == losses[1] != losses[2]


def test_the_loss_of_weighted_spans_is_one() -> None:
    """Of all of them: none are drawn."""
    nlp = make_pipeline("locate_and_label_ner")
    pipe, data = nlp.get_pipe("ner"), make_examples(nlp)
    expected = pipe.get_loss(data, None)
    for eg in data:
        group = eg.reference.spans["sc"]
        group.attrs["weights"] = [0.5] * len(group)
    assert pipe.get_loss(data, None) == expected


def test_docs_without_tokens_have_no_loss(make) -> None:
    nlp = make()
    empty = Example(Doc(nlp.vocab, words=[]), Doc(nlp.vocab, words=[]))
    assert nlp.get_pipe("ner").get_loss([empty], None) == (0.0, None)


def test_docs_without_tokens_need_no_group_of_spans() -> None:
    nlp = make_pipeline(examples=None)
    empty = Example(Doc(nlp.vocab, words=[]), Doc(nlp.vocab, words=[]))
    assert warnings_of(lambda: nlp.initialize(lambda: [empty, *make_examples(nlp)])) == []


def test_what_was_practised_is_forgotten_where_it_begins_anew() -> None:
    nlp = make_pipeline()
    pipe: Any = nlp.get_pipe("ner")
    data, saved = make_examples(nlp), pipe.to_bytes()
    for begin in (lambda: pipe.initialize(lambda: data, nlp=nlp), lambda: pipe.from_bytes(saved)):
        nlp.update(data[3:4], sgd=nlp.create_optimizer())
        assert pipe.unpractised == [label for label in pipe.labels if label != "CELL"]
        begin()
        assert pipe.unpractised == []


def test_docs_and_examples_may_come_one_by_one() -> None:
    nlp = make_pipeline("locate_and_label_ner", threshold=0.0, filter_threshold=0.0)
    pipe: Any = nlp.get_pipe("ner")
    docs, data = texts(nlp), make_examples(nlp)
    found = pipe.predict(doc for doc in docs)
    assert len(found.doc) == len(pipe.predict(docs).doc) > 0
    pipe.set_annotations((doc for doc in docs), found)
    assert all(len(doc.spans["sc"]) for doc in docs)
    assert pipe.get_loss((eg for eg in data), None) == pipe.get_loss(data, None)
    assert pipe.update(eg for eg in data)["ner"] > 0 and pipe.unpractised == []


def test_the_first_lost_gold_of_the_whole_data_is_named() -> None:
    def lost(nlp: Language) -> List[Example]:
        more = [make_example(nlp, f"{name} b", [(0, 1, "")]) for name in ("first", "second")]
        return [*make_examples(nlp), *more]

    (said,) = warnings_of(lambda: make_pipeline(examples=lost))
    assert "2 gold span(s) of the training data" in said and "the first: 'first' as ''" in said


def test_no_long_text_is_in_a_warning() -> None:
    nlp = make_pipeline()
    example = make_example(nlp, "word " * 999 + "end", [(0, 1000, "OTHER")])
    (said,) = warnings_of(lambda: nlp.update([example]))
    assert f"the first: '{'word ' * 8}' as 'OTHER' in '{'word ' * 8}')" in said


READS_VECTORS = {
    "@architectures": "spacy.HashEmbedCNN.v2",
    "pretrained_vectors": True,
    "width": 8,
    "depth": 1,
    "embed_size": 50,
    "window_size": 1,
    "maxout_pieces": 2,
    "subword_features": True,
}


def with_vectors(nlp: Language, width: int) -> Language:
    words = {word for text, _ in SENTENCES for word in text.split()}
    nlp.vocab.reset_vectors(width=width)
    for number, word in enumerate(sorted(words)):
        nlp.vocab.set_vector(word, np.full(width, number, dtype="f"))
    return nlp


def test_static_vectors_that_are_not_there() -> None:
    nlp = make_pipeline("locate_and_label_ner", {"tok2vec": READS_VECTORS}, None)
    nothing = (
        r"'ner'.* reads static vectors.*, and the vocab of the docs has none.*--paths\.vectors"
    )
    with pytest.raises(ValueError, match=nothing):
        nlp.initialize(lambda: make_examples(nlp))
    with_vectors(nlp, 3)
    nlp.initialize(lambda: make_examples(nlp))
    nlp.update(make_examples(nlp))
    text = SENTENCES[0][0]
    nlp(text)
    other = spacy.blank("en")
    with pytest.warns(UserWarning, match="W113"):
        other.add_pipe("ner", source=nlp)
    with pytest.raises(ValueError, match=nothing):
        other(text)
    with pytest.raises(ValueError, match=nothing):
        other.update(make_examples(other))
    with_vectors(other, 4)
    with pytest.raises(ValueError, match=r"vectors of width 3, and .* has vectors of width 4"):
        other(text)
    # The remedy that is named.
    other.vocab.vectors = nlp.vocab.vectors
    found, expected = (each.get_pipe("ner").predict([each.make_doc(text)]) for each in (other, nlp))
    assert np.array_equal(found.score, expected.score)
    other.vocab.vectors = Vectors(shape=(3, 20), strings=other.vocab.strings)
    with pytest.raises(ValueError, match=r"vectors of width 3, and .* has vectors of width 20"):
        other(text)


def test_a_function_in_the_place_of_an_optimizer(make: Callable[..., Language]) -> None:
    nlp, steps = make(), []

    def step(key, weights, gradient, *, lr_scale=1.0):
        steps.append(key)
        return weights, gradient * 0

    nlp.update(make_examples(nlp), sgd=step)
    assert steps


LONG = " ".join(f"word{i}" for i in range(40))


def long_examples(nlp: Language) -> List[Example]:
    """The first sentence of the others, and one with an entity of 40 words."""
    return [make_examples(nlp)[0], make_example(nlp, f"see {LONG} now", [(1, 41, "ORG")])]


@pytest.mark.parametrize("model", [{}, {"grid_width": 8}])
def test_longer_entities_than_at_first_are_learned(model: Dict[str, Any], tmp_path: Path) -> None:
    """Without `lengths` in its config, as by default, the seeds grow with the data."""
    train(make_pipeline("locate_and_label_ner", model), 20).to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    optimizer = make_optimizer()
    for _ in range(60):
        nlp.update(long_examples(nlp), sgd=optimizer)
    texts = [eg.text for eg in long_examples(nlp)]
    found = [spans_of(nlp(text)) for text in texts]
    assert found == [spans_of(eg.reference) for eg in long_examples(nlp)]
    again = make_pipeline("locate_and_label_ner", model).from_bytes(nlp.to_bytes())
    assert [spans_of(again(text)) for text in texts] == found


def test_lengths_of_a_config_stay(tmp_path: Path) -> None:
    nlp = make_pipeline("locate_and_label_ner", {"lengths": [1, 2, 3]})
    nlp.update(long_examples(nlp), sgd=make_optimizer())
    assert head_shim(nlp.get_pipe("ner").model).settings.lengths == [1, 2, 3]
