"""`piqn_ner` on a shared transformer of spacy-transformers."""

import shutil
from pathlib import Path
from typing import Any, Dict, List

import pytest
import spacy
import torch
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import fix_random_seed

from spacy_nested_ner.encoders.pretrained import is_pretrained, learns_too_fast
from spacy_nested_ner.model.head_model import head_shim
from tests.conftest import (
    SENTENCES,
    SMALL_MODELS,
    assert_same_found,
    found_in,
    make_examples,
    save_bert,
    spans_of,
)
from tests.integration.conftest import assert_threads_agree, docs_of, found_by_two_processes

pytest.importorskip("transformers")
pytest.importorskip("spacy_transformers")

LISTENER = {
    "@architectures": "spacy-transformers.TransformerListener.v1",
    "grad_factor": 1.0,
    "pooling": {"@layers": "reduce_mean.v1"},
    "upstream": "transformer",
}


def reading(bert: Path) -> Dict[str, Any]:
    """Settings of a transformer that splits long docs."""
    spans = {"@span_getters": "spacy-transformers.strided_spans.v1", "window": 24, "stride": 18}
    return {"name": str(bert), "get_spans": spans, "tokenizer_config": {"use_fast": True}}


def make_nlp(bert: Path) -> Language:
    """A transformer that splits long docs, and a small component that listens to it."""
    fix_random_seed(0)
    nlp = spacy.blank("en")
    model = {"@architectures": "spacy-transformers.TransformerModel.v3", **reading(bert)}
    nlp.add_pipe("transformer", config={"model": model})
    head = {**SMALL_MODELS["piqn_ner"], "tok2vec": LISTENER}
    nlp.add_pipe("piqn_ner", config={"model": head})
    data = make_examples(nlp)
    nlp.initialize(lambda: data)
    return nlp


def with_empty(nlp: Language) -> List[Example]:
    """The ten sentences with a doc without tokens among them."""
    empty = Example(Doc(nlp.vocab, words=[]), Doc(nlp.vocab, words=[]))
    examples = make_examples(nlp)
    return [*examples[:3], empty, *examples[3:]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Language:
    """Trained with an empty doc in each batch; its Hugging Face directory is gone since then."""
    path = tmp_path_factory.mktemp("hub") / "gone"
    save_bert(path)
    nlp = make_nlp(path)
    shutil.rmtree(path)
    optimizer = nlp.create_optimizer()
    optimizer.learn_rate = 0.003
    for _ in range(80):
        nlp.update(with_empty(nlp), sgd=optimizer)
    return nlp


def test_transformer_and_head_learn_together(trained, tiny_bert) -> None:
    assert trained.evaluate(make_examples(trained))["nested_f"] == 1.0
    nlp = make_nlp(tiny_bert)
    before = _transformer_weights(nlp)
    optimizer = nlp.create_optimizer()
    for _ in range(2):  # nlp.update lets a transformer step before its listeners' gradients come
        nlp.update(with_empty(nlp), sgd=optimizer)
    after = _transformer_weights(nlp)
    assert any((before[name] != after[name]).any() for name in before)


def _transformer_weights(nlp: Language) -> Dict[str, Any]:
    module = nlp.get_pipe("transformer").model.transformer
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def test_a_doc_without_tokens_changes_nothing_in_its_batch(trained) -> None:
    docs = docs_of(trained)
    docs.insert(3, Doc(trained.vocab, words=[]))
    got = found_in(trained, docs)
    assert got.pop(3) == ([], [])
    assert_same_found(got, found_in(trained, docs_of(trained)))
    assert found_in(trained, [Doc(trained.vocab, words=[])]) == [([], [])]


def test_an_update_with_only_empty_docs_learns_nothing(trained) -> None:
    empty = Example(Doc(trained.vocab, words=[]), Doc(trained.vocab, words=[]))
    before = trained.get_pipe("piqn_ner").model.to_bytes()
    losses = trained.update([empty], sgd=trained.create_optimizer())
    assert losses["piqn_ner"] == 0.0
    assert trained.get_pipe("piqn_ner").model.to_bytes() == before


def test_a_saved_pipeline_loads_without_the_hugging_face_directory(trained, tmp_path) -> None:
    trained.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert not Path(loaded.config["components"]["transformer"]["model"]["name"]).exists()
    assert_same_found(found_in(loaded, docs_of(loaded)), found_in(trained, docs_of(trained)))


def test_replaced_listeners_give_the_same_spans(trained, tmp_path) -> None:
    """Also after a round trip, and for a doc without tokens."""
    trained.to_disk(tmp_path / "shared")
    nlp = spacy.load(tmp_path / "shared")
    expected = found_in(trained, docs_of(trained))
    nlp.replace_listeners("transformer", "piqn_ner", ["model.tok2vec"])
    nlp.remove_pipe("transformer")
    docs = [*docs_of(nlp), Doc(nlp.vocab, words=[])]
    assert_same_found(found_in(nlp, docs)[:-1], expected)
    nlp.to_disk(tmp_path / "own")
    loaded = spacy.load(tmp_path / "own")
    assert loaded.pipe_names == ["piqn_ner"]
    assert_same_found(found_in(loaded, docs_of(loaded)), expected)
    before = loaded.get_pipe("piqn_ner").model.to_bytes()
    loaded.update(with_empty(loaded), sgd=loaded.resume_training())
    assert loaded.get_pipe("piqn_ner").model.to_bytes() != before


def test_a_frozen_transformer_stays_as_it_is(tiny_bert) -> None:
    nlp = make_nlp(tiny_bert)
    before = _transformer_weights(nlp)
    optimizer = nlp.create_optimizer()
    head = nlp.get_pipe("piqn_ner").model.to_bytes()
    for _ in range(3):
        nlp.update(
            with_empty(nlp), sgd=optimizer, exclude=["transformer"], annotates=["transformer"]
        )
    after = _transformer_weights(nlp)
    assert all((before[name] == after[name]).all() for name in before)
    assert nlp.get_pipe("piqn_ner").model.to_bytes() != head


def test_segments_are_cut_after_the_transformer(tiny_bert) -> None:
    """A listener accepts only the whole batch that the transformer has seen: the head's windows
    are cut from its output, in training too."""
    nlp = make_nlp(tiny_bert)
    words = [token.text for doc in docs_of(nlp) for token in doc] * 8
    reference = Doc(nlp.vocab, words=words)
    reference.spans["sc"] = [Span(reference, 0, 4, "ORG")]
    example = Example(Doc(nlp.vocab, words=words), reference)
    pipe = nlp.get_pipe("piqn_ner")
    assert len(words) > 2 * pipe.cfg["window"]
    nlp.update([example, *with_empty(nlp)], sgd=nlp.create_optimizer())
    pipe.cfg["threshold"] = 0.0
    with torch.no_grad():  # no query answers None
        head_shim(pipe.model).module.classifier.output.bias[0] = -100.0
    doc = nlp(Doc(nlp.vocab, words=words))
    ends = [span.end for span in doc.spans["sc"]]
    assert min(ends) <= pipe.cfg["window"] and max(ends) > 2 * pipe.cfg["window"]


def test_two_forked_processes_find_what_one_finds(trained, tmp_path) -> None:
    """After torch has used its threads in the first one."""
    trained.to_disk(tmp_path / "model")
    texts = [text for text, _ in SENTENCES] * 2
    found = found_by_two_processes("fork", tmp_path / "model", texts, tmp_path)
    docs = list(spacy.load(tmp_path / "model").pipe(texts))
    assert found == [spans_of(doc) for doc in docs] and sum(map(len, found)) > 10


def test_four_threads_get_what_one_gets_of_a_transformer_inside(trained, tmp_path) -> None:
    """spacy-transformers leaves its module in training mode after each prediction: a thread that
    predicted at that moment would read words with dropout."""
    trained.to_disk(tmp_path)
    nlp = spacy.load(tmp_path)
    nlp.replace_listeners("transformer", "piqn_ner", ["model.tok2vec"])
    nlp.remove_pipe("transformer")
    assert_threads_agree(nlp, [text for text, _ in SENTENCES] * 5)


def test_spacys_own_transformer_in_the_component_counts_as_pretrained(tiny_bert) -> None:
    """It is warned of at a high rate, and reads what it learned from."""
    own = {
        "@architectures": "spacy-transformers.Tok2VecTransformer.v3",
        "pooling": {"@layers": "reduce_mean.v1"},
        **reading(tiny_bert),
    }
    nlp = spacy.blank("en")
    nlp.add_pipe("piqn_ner", config={"model": {**SMALL_MODELS["piqn_ner"], "tok2vec": own}})
    encoder = nlp.get_pipe("piqn_ner").model.get_ref("tok2vec")
    assert is_pretrained(encoder)
    assert learns_too_fast(encoder, 0.01) and not learns_too_fast(encoder, 1e-5)
    assert not is_pretrained(make_nlp(tiny_bert).get_pipe("piqn_ner").model.get_ref("tok2vec"))
