"""All five systems behind listeners on a shared `curated_transformer`."""

import re
import string
from pathlib import Path
from typing import Any, Dict, List

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import filter_spans, fix_random_seed, load_config

from spacy_nested_ner.encoders.pretrained import is_pretrained, learns_too_fast
from tests.conftest import (
    SENTENCES,
    SMALL_CNN,
    SMALL_MODELS,
    assert_same_found,
    found_in,
    make_example,
    make_examples,
    spans_of,
    train,
)
from tests.integration.conftest import assert_threads_agree, docs_of, run_spacy

pytest.importorskip("spacy_curated_transformers")

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "trf_pipelines.md"
ENCODER = {
    "@architectures": "spacy-curated-transformers.BertTransformer.v1",
    "vocab_size": 100,
    "hidden_width": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_width": 64,
    "max_position_embeddings": 64,
    "model_max_length": 64,
    "piece_encoder": {"@architectures": "spacy-curated-transformers.CharEncoder.v1"},
    "with_spans": {
        "@architectures": "spacy-curated-transformers.WithStridedSpans.v1",
        "stride": 24,
        "window": 32,
    },
}
POOLING = {"@layers": "reduce_mean.v1"}
LISTENER = {
    "@architectures": "spacy-curated-transformers.LastTransformerLayerListener.v1",
    "width": 32,
    "pooling": POOLING,
    "upstream": "transformer",
}
MEAN_OF_LAYERS = {
    "@architectures": "spacy-curated-transformers.ScalarWeightingListener.v1",
    "width": 32,
    "pooling": POOLING,
    "weighting": {
        "@architectures": "spacy-curated-transformers.ScalarWeight.v1",
        "num_layers": 2,
    },
}
TAGGER = {"@architectures": "spacy.Tagger.v2", "tok2vec": LISTENER}
NER = {
    "@architectures": "spacy.TransitionBasedParser.v2",
    "state_type": "ner",
    "extra_state_tokens": False,
    "hidden_width": 16,
    "maxout_pieces": 2,
    "use_upper": False,
    "tok2vec": LISTENER,
}
# The transformer learns nothing, and the others read what it sets on the docs.
FROZEN: Dict[str, Any] = {"exclude": ["transformer"], "annotates": ["transformer"]}


@pytest.fixture(scope="module")
def characters(tmp_path_factory) -> Path:
    """A vocabulary of pieces: one per character."""
    path = tmp_path_factory.mktemp("pieces") / "characters.txt"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *string.ascii_letters, *string.digits, *",.-"]
    path.write_text("\n".join(pieces), encoding="utf8")
    return path


def add_transformer(nlp: Language, characters: Path, **settings: Any) -> None:
    nlp.add_pipe("curated_transformer", "transformer", config={"model": ENCODER, **settings})
    loader = {
        "@model_loaders": "spacy-curated-transformers.CharEncoderLoader.v1",
        "path": str(characters),
    }
    nlp.config["initialize"]["components"]["transformer"] = {"piecer_loader": loader}


def add_component(nlp: Language, factory: str, listener: Dict[str, Any], **settings: Any) -> None:
    model = {**SMALL_MODELS[factory], "tok2vec": listener}
    if factory == "mrc_ner":
        model["question_tok2vec"] = SMALL_CNN
    nlp.add_pipe(factory, config={"model": model, **settings})


def make_nlp(
    characters: Path, factory: str, listener: Dict[str, Any] = LISTENER, **settings: Any
) -> Language:
    """A transformer and a small component that listens to it.

    settings: of the transformer component.
    """
    fix_random_seed(0)
    nlp = spacy.blank("en")
    add_transformer(nlp, characters, **settings)
    add_component(nlp, factory, listener)
    data = make_examples(nlp)
    nlp.initialize(lambda: data)
    return nlp


def train_frozen(nlp: Language, steps: int) -> None:
    optimizer = nlp.create_optimizer()
    optimizer.learn_rate = 0.003
    for _ in range(steps):
        nlp.update(make_examples(nlp), sgd=optimizer, **FROZEN)


def loss_of(nlp: Language, factory: str) -> float:
    pipe: Any = nlp.get_pipe(factory)
    fix_random_seed(0)
    docs = list(nlp.pipe(docs_of(nlp)))
    gold = [eg.reference for eg in make_examples(nlp)]
    return pipe.get_loss([Example(*pair) for pair in zip(docs, gold)], None)[0]


@pytest.fixture(scope="module", params=SMALL_MODELS)
def learned(request, characters) -> Language:
    """A pipeline after some updates; finds more than the default threshold lets through."""
    nlp = make_nlp(characters, request.param)
    before = weights(nlp, "transformer"), loss_of(nlp, request.param)
    train(nlp, 50)
    assert weights(nlp, "transformer") != before[0]
    assert loss_of(nlp, request.param) < 0.9 * before[1]
    nlp.get_pipe(request.param).cfg["threshold"] = 0.0
    return nlp


def weights(nlp: Language, name: str) -> bytes:
    return nlp.get_pipe(name).model.to_bytes()


def test_a_system_gives_the_same_after_round_trips(learned, characters, tmp_path) -> None:
    """And for any batch, also with a doc without tokens; and with a transformer of its own."""
    expected = found_in(learned, docs_of(learned))
    one_by_one = [found_in(learned, [doc])[0] for doc in docs_of(learned)]
    assert_same_found(one_by_one, expected, more_than=7)
    docs = [*docs_of(learned)[::-1], Doc(learned.vocab, words=[])]
    *reverse, empty = found_in(learned, docs)
    assert_same_found(reverse[::-1], expected, more_than=7)
    assert empty == ([], [])
    factory = learned.pipe_names[-1]
    fresh = make_nlp(characters, factory).from_bytes(learned.to_bytes())
    assert_same_found(found_in(fresh, docs_of(fresh)), expected, more_than=7)
    learned.to_disk(tmp_path / "shared")
    loaded = spacy.load(tmp_path / "shared")
    assert_same_found(found_in(loaded, docs_of(loaded)), expected, more_than=7)
    loaded.replace_listeners("transformer", factory, ["model.tok2vec"])
    loaded.remove_pipe("transformer")
    loaded.to_disk(tmp_path / "own")
    own = spacy.load(tmp_path / "own")
    assert own.pipe_names == [factory]
    assert_same_found(found_in(own, docs_of(own)), expected, more_than=7)
    before = own.get_pipe(factory).model.layers[0].to_bytes()
    own.update(make_examples(own), sgd=own.resume_training())
    assert own.get_pipe(factory).model.layers[0].to_bytes() != before


def test_two_systems_learn_on_one_transformer(characters) -> None:
    names = ["piqn_ner", "proposer_regressor_ner"]
    fix_random_seed(0)
    nlp = spacy.blank("en")
    add_transformer(nlp, characters)
    for name in names:
        add_component(nlp, name, LISTENER, spans_key=name)

    def examples(nlp: Language) -> List[Example]:
        made = make_examples(nlp)
        for eg in made:
            for name in names:
                eg.reference.spans[name] = list(eg.reference.spans["sc"])
        return made

    nlp.initialize(lambda: examples(nlp))
    train(nlp, 100, examples)
    gold = [sorted((start, end, label) for start, end, label in spans) for _, spans in SENTENCES]
    for name in names:
        found = [sorted(spans_of(doc, name)) for doc in nlp.pipe(docs_of(nlp))]
        assert sum(a == b for a, b in zip(found, gold)) >= 8


@pytest.mark.parametrize("factory", SMALL_MODELS)
def test_a_system_learns_from_a_frozen_transformer(characters, factory) -> None:
    """spacy-curated-transformers asserts that its listeners have a batch, and says no more."""
    nlp = make_nlp(characters, factory)
    before = weights(nlp, "transformer"), loss_of(nlp, factory)
    train_frozen(nlp, 15)
    assert weights(nlp, "transformer") == before[0]
    assert loss_of(nlp, factory) < before[1]


def test_a_frozen_transformer_that_annotates_nothing_is_named(characters) -> None:
    nlp = make_nlp(characters, "piqn_ner")
    problem = r"'piqn_ner': .*upstream = 'transformer'.*training.annotating_components"
    with pytest.raises(ValueError, match=problem):
        nlp.update(make_examples(nlp), exclude=["transformer"])
    alone = spacy.blank("en")
    add_component(alone, "piqn_ner", LISTENER)
    alone.initialize(lambda: make_examples(alone))
    with pytest.raises(ValueError, match=r"'piqn_ner': .*Put that component before this one"):
        alone.update(make_examples(alone))


@pytest.mark.parametrize("frozen", [False, True])
def test_the_weights_of_layers_are_learned(characters, frozen, tmp_path) -> None:
    nlp = make_nlp(characters, "piqn_ner", listener=MEAN_OF_LAYERS, all_layer_outputs=True)
    before = nlp.get_pipe("piqn_ner").model.layers[0].to_bytes()
    if frozen:
        train_frozen(nlp, 20)
    else:
        train(nlp, 20)
    assert nlp.get_pipe("piqn_ner").model.layers[0].to_bytes() != before
    nlp.get_pipe("piqn_ner").cfg["threshold"] = 0.0
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert_same_found(found_in(loaded, docs_of(loaded)), found_in(nlp, docs_of(nlp)), more_than=10)


def test_wrong_listeners_are_named_with_the_remedy(characters) -> None:
    layers = {
        "@architectures": "spacy-curated-transformers.TransformerLayersListener.v1",
        "layers": 2,
        "width": 32,
        "pooling": POOLING,
    }
    with pytest.raises(ValueError, match=r"'piqn_ner': .*LastTransformerLayerListener"):
        make_nlp(characters, "piqn_ner", listener=layers, all_layer_outputs=True)
    nlp = make_nlp(characters, "piqn_ner", listener={**LISTENER, "width": 48})
    with pytest.raises(ValueError, match=r"'piqn_ner': .*Set width = 32"):
        nlp.update(make_examples(nlp))


def test_adversarial_training_is_refused(characters) -> None:
    """With a listener, and with a copy of the transformer, which is no listener any more."""
    nlp = make_nlp(characters, "piqn_ner")
    nlp.get_pipe("piqn_ner").cfg["adversarial"] = 1.0
    with pytest.raises(ValueError, match=r"'piqn_ner': .*a listener.*Set adversarial to 0"):
        nlp.update(make_examples(nlp))
    nlp.replace_listeners("transformer", "piqn_ner", ["model.tok2vec"])
    nlp.remove_pipe("transformer")
    with pytest.raises(ValueError, match=r"'piqn_ner': .*no trainable embeddings"):
        nlp.update(make_examples(nlp))


def test_a_copy_of_the_transformer_counts_as_pretrained(characters) -> None:
    """It is warned of at a high rate, unless it is frozen."""
    nlp = make_nlp(characters, "piqn_ner")
    pipe: Any = nlp.get_pipe("piqn_ner")
    assert not is_pretrained(pipe.model.layers[0])
    nlp.replace_listeners("transformer", "piqn_ner", ["model.tok2vec"])
    encoder = pipe.model.layers[0]
    assert is_pretrained(encoder)
    assert learns_too_fast(encoder, 0.01) and not learns_too_fast(encoder, 1e-5)
    encoder.frozen_transformer = True
    assert not learns_too_fast(encoder, 0.01)


def test_mrc_needs_something_else_to_read_the_questions(characters) -> None:
    nlp = spacy.blank("en")
    add_transformer(nlp, characters)
    for own in (None, LISTENER):
        model = {**SMALL_MODELS["mrc_ner"], "tok2vec": LISTENER, "question_tok2vec": own}
        with pytest.raises(ValueError, match=r"listener.*Give question_tok2vec"):
            nlp.add_pipe("mrc_ner", config={"model": model})


def test_white_space_and_empty_docs_are_learned_from(characters) -> None:
    nlp = make_nlp(characters, "piqn_ner")
    empty = Example(Doc(nlp.vocab, words=[]), Doc(nlp.vocab, words=[]))
    spaces = make_example(nlp, "\n human \n\n T cells \n", [(1, 5, "CELL")])
    for kwargs in ({}, FROZEN):
        losses = nlp.update([spaces, empty, *make_examples(nlp)], **kwargs)
        assert losses["piqn_ner"] > 0
        assert nlp.update([empty], **kwargs)["piqn_ner"] == 0


def test_threads_find_what_one_finds_with_a_transformer_inside(characters) -> None:
    """Its module is in training mode between two predictions."""
    nlp = train(make_nlp(characters, "piqn_ner"), 40)
    texts = [text for text, _ in SENTENCES]
    nlp.replace_listeners("transformer", "piqn_ner", ["model.tok2vec"])
    nlp.remove_pipe("transformer")
    assert_threads_agree(nlp, texts * 2)


# The page's pipeline: a nested component beside those that listen to the transformer already


def annotated(nlp: Language) -> List[Example]:
    """The ten sentences with tags and flat entities beside the nested ones."""
    examples = make_examples(nlp)
    for eg in examples:
        reference = eg.reference
        for token in reference:
            token.tag_ = "NAME" if token.text[0].isupper() else "OTHER"
        reference.ents = filter_spans(reference.spans["sc"])
    return examples


def annotation(nlp: Language) -> List[Any]:
    """What the others than the nested component find."""
    docs = nlp.pipe(docs_of(nlp))
    return [
        ([token.tag_ for token in doc], [(ent.text, ent.label_) for ent in doc.ents])
        for doc in docs
    ]


@pytest.fixture(scope="module")
def base(characters, tmp_path_factory) -> Path:
    """A trained pipeline with the components of `en_core_web_trf`, tiny."""
    fix_random_seed(0)
    nlp = spacy.blank("en")
    add_transformer(nlp, characters)
    nlp.add_pipe("tagger", config={"model": TAGGER})
    # Stand-ins without a listener: a parser needs trees, a lemmatizer tables.
    nlp.add_pipe("sentencizer", "parser")
    nlp.add_pipe("attribute_ruler", "attribute_ruler")
    nlp.add_pipe("attribute_ruler", "lemmatizer")
    nlp.add_pipe("ner", config={"model": NER})
    add_component(nlp, "piqn_ner", LISTENER)
    nlp.initialize(lambda: annotated(nlp))
    train(nlp, 30, annotated)
    nlp.remove_pipe("piqn_ner")
    path = tmp_path_factory.mktemp("base") / "pipeline"
    nlp.to_disk(path)
    return path


@pytest.fixture
def page_config(base, corpus, tmp_path) -> Path:
    """The config of the page, for the tiny pipeline."""
    text = PAGE.read_text(encoding="utf8")
    block = re.findall(r"```ini\n(.*?)```", text, re.S)[0]
    (tmp_path / "page.cfg").write_text(block, encoding="utf8")
    config = load_config(tmp_path / "page.cfg", interpolate=False)
    config["paths"] = {"base": str(base), "train": str(corpus), "dev": str(corpus)}
    model = config["components"]["nested_ner"]["model"]
    model.update({**SMALL_MODELS["piqn_ner"], "tok2vec": {**model["tok2vec"], "width": 32}})
    config["training"].update({"max_steps": 40, "eval_frequency": 20, "dropout": 0.0})
    config.to_disk(tmp_path / "config.cfg")
    return tmp_path / "config.cfg"


def test_a_nested_component_leaves_the_others_as_they_are(page_config, base, tmp_path) -> None:
    """As the page says: first with a frozen transformer, then with a copy of it that learns."""
    run_spacy("train", page_config, "--output", tmp_path / "frozen")
    before, frozen = spacy.load(base), spacy.load(tmp_path / "frozen" / "model-last")
    assert frozen.pipe_names == [*before.pipe_names, "nested_ner"]
    assert weights(frozen, "transformer") == weights(before, "transformer")
    assert annotation(frozen) == annotation(before)
    assert len({tag for tags, _ in annotation(before) for tag in tags}) == 2
    assert frozen.evaluate(make_examples(frozen))["nested_f"] > 0.5
    frozen.replace_listeners("transformer", "nested_ner", ["model.tok2vec"])
    frozen.to_disk(tmp_path / "own")
    config = load_config(page_config, interpolate=False)
    config["paths"]["base"] = str(tmp_path / "own")
    config["components"]["nested_ner"] = {"source": "${paths.base}"}
    config["training"].update({"annotating_components": [], "max_steps": 5, "eval_frequency": 5})
    config.to_disk(tmp_path / "own.cfg")
    run_spacy("train", tmp_path / "own.cfg", "--output", tmp_path / "tuned")
    tuned = spacy.load(tmp_path / "tuned" / "model-last")
    own = [nlp.get_pipe("nested_ner").model.layers[0].to_bytes() for nlp in (frozen, tuned)]
    assert own[0] != own[1]
    assert weights(tuned, "transformer") == weights(before, "transformer")
    assert annotation(tuned) == annotation(before)
    assert tuned.evaluate(make_examples(tuned))["nested_f"] > 0.5
