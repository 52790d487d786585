"""Trained pipelines whose pretrained encoders are rounded to int8."""

from pathlib import Path

import numpy as np
import pytest
import spacy
from spacy.cli.package import package
from spacy.tokens import Doc
from thinc.api import Adam
from thinc.util import to_numpy

from spacy_nested_ner.encoders.protocol import PairInput
from spacy_nested_ner.pipeline.compress import compress
from tests.conftest import (
    SENTENCES,
    SMALL_MODELS,
    found_in,
    make_examples,
    make_pipeline,
    spans_of,
    train,
)

pytest.importorskip("transformers")

# Thresholds that let spans of a short training pass.
ENCODERS = {
    "SortedTransformer": ("locate_and_label_ner", {}, {"filter_threshold": 0.0}),
    "QueryEncoder": ("piqn_ner", {"query_source": "encoder", "quantity": 0.75}, {}),
    "PairEncoder": ("mrc_ner", {}, {}),
}


def encoder_config(name, directory):
    queries = {"n_queries": 16} if name == "QueryEncoder" else {}
    return {"@architectures": f"spacy_nested_ner.{name}.v1", "name": str(directory), **queries}


@pytest.fixture(scope="module", params=ENCODERS)
def pipelines(request, tiny_bert, tmp_path_factory):
    """Paths of a trained pipeline and of the same in int8."""
    factory, settings, options = ENCODERS[request.param]
    tok2vec = encoder_config(request.param, tiny_bert)
    model = {**settings, "tok2vec": tok2vec}
    nlp = train(make_pipeline(factory, model, threshold=0.01, **options), 20)
    path = tmp_path_factory.mktemp("pipelines")
    nlp.to_disk(path / "float32")
    assert compress(nlp) == ["ner"]
    nlp.to_disk(path / "int8")
    return path


def docs_of(nlp):
    return [Doc(nlp.vocab, words=text.split(" ")) for text, _ in SENTENCES]


def test_it_saves_and_loads_smaller_and_predicts_about_the_same(pipelines):
    before, after = spacy.load(pipelines / "float32"), spacy.load(pipelines / "int8")
    sizes = [(pipelines / kind / "ner" / "model").stat().st_size for kind in ("float32", "int8")]
    assert sizes[1] < 0.85 * sizes[0]  # of this tiny model: the head stays as it is
    found, expected = (vectors(nlp, docs_of(nlp)) for nlp in (after, before))
    for ours, theirs in zip(found, expected):
        assert 0 < np.linalg.norm(ours - theirs) < 0.05 * np.linalg.norm(theirs)


def test_the_config_says_so_and_bytes_keep_it(pipelines):
    nlp = spacy.load(pipelines / "int8")
    assert nlp.config["components"]["ner"]["model"]["tok2vec"]["int8"] is True
    expected = found_in(nlp, docs_of(nlp))
    assert sum(len(spans) for spans, _ in expected) > 10
    again = type(nlp).from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert found_in(again, docs_of(again)) == expected


def vectors(nlp, docs):
    """What the encoder gives for each doc alone in one batch."""
    model = nlp.get_pipe("ner").model
    encoder = model.get_ref("tok2vec")
    if encoder.name == "sorted_transformer":
        return list(map(to_numpy, encoder.predict(docs)))
    segments = np.array([(i, 0, len(doc)) for i, doc in enumerate(docs)])
    if encoder.name == "query_encoder":
        words, queries = map(to_numpy, encoder.predict((docs, segments)))
        ends = np.cumsum([len(doc) for doc in docs])
        return [np.vstack([words[e - len(d) : e], q]) for d, e, q in zip(docs, ends, queries)]
    pairs = np.array([(i, 0) for i in range(len(docs))])
    reading = encoder.predict(PairInput(docs, segments, ["Which genes are there ?"], pairs))
    read, mask = reading.read(np.arange(len(docs)))
    return [row[real].cpu().numpy() for row, real in zip(read, mask)]


def test_vectors_do_not_depend_on_the_batch_to_the_last_bit(pipelines):
    nlp = spacy.load(pipelines / "int8")
    docs = docs_of(nlp)
    together = vectors(nlp, docs)
    for doc, vector in zip(docs, together):
        assert np.array_equal(vectors(nlp, [doc])[0], vector)
    for doc, vector in zip(reversed(docs), vectors(nlp, docs[::-1])):
        assert np.array_equal(vectors(nlp, [doc])[0], vector)


def test_it_cannot_be_trained_and_says_what_to_do(pipelines):
    nlp = spacy.load(pipelines / "int8")
    with pytest.raises(ValueError, match="'ner' is compressed already"):
        compress(nlp)
    with pytest.raises(
        ValueError, match=r"'ner'.* int8.*Train the pipeline that it was compressed"
    ):
        nlp.update(make_examples(nlp), sgd=Adam(0.001))
    with pytest.raises(ValueError, match=r"int8 is true.*Set int8 to false, train, and compress"):
        nlp.initialize(lambda: make_examples(nlp))


def test_it_packages(pipelines, tmp_path):
    package(
        pipelines / "int8",
        tmp_path,
        name="small",
        version="1.0.0",
        create_sdist=False,
        create_wheel=False,
        silent=True,
    )
    (folder,) = tmp_path.glob("*/*/en_small-1.0.0")
    nlp, expected = spacy.load(folder), spacy.load(pipelines / "int8")
    assert found_in(nlp, docs_of(nlp)) == found_in(expected, docs_of(expected))


def test_what_cannot_be_compressed_is_named():
    nlp = make_pipeline("piqn_ner", examples=None)
    with pytest.raises(ValueError, match="'ner' has no pretrained encoder; 'words' has no pre"):
        nlp.add_pipe("sentencizer", name="words")
        compress(nlp)
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 96, "upstream": "*"}
    nlp = make_pipeline("piqn_ner", {"tok2vec": listener}, examples=None)
    with pytest.raises(ValueError, match="'ner' takes its vectors from another component"):
        compress(nlp)


def test_an_encoder_that_reads_questions_apart(tiny_bert):
    tok2vec = {**encoder_config("PairEncoder", tiny_bert), "joint_layers": 1}
    nlp = make_pipeline("mrc_ner", {"tok2vec": tok2vec})
    with pytest.raises(ValueError, match="int8 needs joint_layers = null"):
        compress(nlp)


def test_what_cannot_be_compressed_stays_beside_what_can(tiny_bert, tmp_path):
    nlp = spacy.blank("en")
    for factory, encoder, own in (
        ("mrc_ner", "PairEncoder", {"joint_layers": 1}),
        ("piqn_ner", "SortedTransformer", {}),
    ):
        tok2vec = {**encoder_config(encoder, tiny_bert), **own}
        model = {**SMALL_MODELS[factory], "tok2vec": tok2vec}
        nlp.add_pipe(factory, config={"model": model})
    nlp.initialize(lambda: make_examples(nlp))
    before = nlp.get_pipe("mrc_ner").to_bytes()
    with pytest.warns(UserWarning, match="'mrc_ner' stays as it is: it cannot .* joint_layers"):
        assert compress(nlp) == ["piqn_ner"]
    assert nlp.get_pipe("mrc_ner").to_bytes() == before
    nlp.to_disk(tmp_path)
    assert spacy.load(tmp_path).get_pipe("mrc_ner").to_bytes() == before
    problem = "'mrc_ner' cannot be compressed: .*; 'piqn_ner' is compressed already"
    with pytest.raises(ValueError, match=problem):
        compress(nlp)


def test_another_component_with_an_encoder_of_this_package(tiny_bert, tmp_path):
    """spaCy's own components learn no more either, and their encoder may be inside another one."""
    nlp = spacy.blank("en")
    hybrid = {
        "@architectures": "spacy_nested_ner.HybridEncoder.v1",
        "char_width": 8,
        "tok2vec": encoder_config("SortedTransformer", tiny_bert),
    }
    nlp.add_pipe("tok2vec", config={"model": hybrid})
    nlp.initialize(lambda: make_examples(nlp))
    assert compress(nlp) == ["tok2vec"]
    inner = nlp.config["components"]["tok2vec"]["model"]["tok2vec"]
    assert inner["int8"] is True
    nlp.to_disk(tmp_path / "model")
    again = spacy.load(tmp_path / "model")
    assert np.array_equal(again("T cells").tensor, nlp("T cells").tensor)
    with pytest.raises(ValueError, match="int8, which cannot be trained further"):
        again.get_pipe("tok2vec").update(make_examples(again))


@pytest.mark.parametrize("replaced", [False, True])
def test_a_transformer_of_spacy_transformers(tiny_bert: Path, tmp_path: Path, replaced: bool):
    pytest.importorskip("spacy_transformers")
    spans = {"@span_getters": "spacy-transformers.strided_spans.v1", "window": 24, "stride": 24}
    model = {
        "@architectures": "spacy_nested_ner.LayerMeanTransformer.v1",
        "name": str(tiny_bert),
        "n_layers": 2,
        "get_spans": spans,
    }
    listener = {
        "@architectures": "spacy-transformers.TransformerListener.v1",
        "grad_factor": 1.0,
        "pooling": {"@layers": "reduce_mean.v1"},
        "upstream": "*",
    }
    nlp = spacy.blank("en")
    nlp.add_pipe("transformer", config={"model": model})
    head = {"@architectures": "spacy_nested_ner.PIQN.v1", "hidden_width": 32, "attention_heads": 2}
    nlp.add_pipe("piqn_ner", name="ner", config={"model": {**head, "tok2vec": listener}})
    nlp.initialize(lambda: make_examples(nlp))
    train(nlp, 20)
    if replaced:
        nlp.replace_listeners("transformer", "ner", ["model.tok2vec"])
    name = "ner" if replaced else "transformer"
    texts = [text for text, _ in SENTENCES]
    before = [doc.copy() for doc in nlp.pipe(texts)]
    assert name in compress(nlp)
    nlp.to_disk(tmp_path / "model")
    assert b"PK\x03\x04" not in (tmp_path / "model" / name / "model").read_bytes()  # torch's pickle
    again = spacy.load(tmp_path / "model")
    expected = found_in(nlp, [nlp.make_doc(text) for text in texts])
    assert found_in(again, [again.make_doc(text) for text in texts]) == expected
    same = [found[0] == spans_of(doc) for found, doc in zip(expected, before)]
    assert sum(same) > 6
    with pytest.raises(ValueError, match="int8, which cannot be trained further"):
        again.update(make_examples(again), sgd=Adam(0.001))
