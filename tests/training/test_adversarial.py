"""Learning from embeddings that are moved against the batch."""

from typing import Any, Dict, List

import numpy as np
import pytest
import spacy
from spacy.language import Language
from thinc.util import torch2xp

from spacy_nested_ner.model.head_model import head_shim
from spacy_nested_ner.training.adversarial import embedding_tables, moved
from tests.conftest import SMALL_CNN, make_examples, make_pipeline, train

SIZE = 0.5


def bert(directory: Any, **settings: Any) -> Dict[str, Any]:
    name = {"@architectures": "spacy_nested_ner.SortedTransformer.v1", "name": str(directory)}
    return {"tok2vec": {**name, **settings}}


def learn(nlp: Language) -> Any:
    """The pipe after the gradients of one batch."""
    pipe: Any = nlp.get_pipe("ner")
    pipe.update(make_examples(nlp))
    return pipe


def weights_of(pipe: Any) -> List[np.ndarray]:
    return [torch2xp(table.weights).copy() for table in embedding_tables(pipe.model)]


def gradients_of(pipe: Any) -> List[np.ndarray]:
    """Of the embeddings and of the head."""
    head = [parameter.grad for parameter in head_shim(pipe.model).module.parameters()]
    tables = [table.gradient for table in embedding_tables(pipe.model)]
    return [torch2xp(gradient).copy() for gradient in (*tables, *head)]


@pytest.mark.parametrize("encoder", ["hashed", "pretrained"])
def test_update_adds_gradients_at_the_moved_embeddings(encoder, tiny_bert) -> None:
    model = bert(tiny_bert) if encoder == "pretrained" else {}
    nlp = make_pipeline("locate_and_label_ner", model)
    pipe = learn(nlp)
    here, before = gradients_of(pipe), weights_of(pipe)
    norm = np.sqrt(sum((table.gradient**2).sum() for table in embedding_tables(pipe.model)))
    for table in embedding_tables(pipe.model):
        table.weights.add_(SIZE * table.gradient / norm)
    moves = [after - old for after, old in zip(weights_of(pipe), before)]
    assert np.sqrt(sum((move**2).sum() for move in moves)) == pytest.approx(SIZE, abs=1e-4)
    pipe.update(make_examples(nlp))  # adds to the gradients of the first pass
    both = gradients_of(pipe)
    assert not all(np.allclose(total, 2 * first) for total, first in zip(both, here))
    other = learn(make_pipeline("locate_and_label_ner", model, adversarial=SIZE))
    for total, found in zip(both, gradients_of(other)):
        np.testing.assert_allclose(found, total, rtol=1e-3, atol=1e-5)


def test_embeddings_are_back_after_an_update(make) -> None:
    plain, adversarial = make(), make(adversarial=SIZE)
    losses = [learn(nlp).update(make_examples(nlp)) for nlp in (plain, adversarial)]
    for one, other in zip(*(weights_of(nlp.get_pipe("ner")) for nlp in (plain, adversarial))):
        np.testing.assert_array_equal(one, other)
    assert losses[0]["ner"] > 0 and losses[1]["ner"] > 0


def test_moved_embeddings_have_a_higher_loss_and_come_back_after_an_error() -> None:
    nlp = make_pipeline("locate_and_label_ner")
    pipe, examples = learn(nlp), make_examples(nlp)
    before, weights = pipe.get_loss(examples, None)[0], weights_of(pipe)
    with pytest.raises(KeyError), moved(embedding_tables(pipe.model), SIZE):
        assert pipe.get_loss(examples, None)[0] > before + 1e-3
        raise KeyError
    for one, other in zip(weights, weights_of(pipe)):
        np.testing.assert_array_equal(one, other)


def test_sentences_are_memorised() -> None:
    nlp = train(make_pipeline("locate_and_label_ner", adversarial=SIZE), 120)
    assert nlp.evaluate(make_examples(nlp))["nested_f"] == 1.0


def test_setting_is_saved(tmp_path) -> None:
    make_pipeline("piqn_ner", adversarial=SIZE).to_disk(tmp_path)
    pipe: Any = spacy.load(tmp_path).get_pipe("ner")
    assert pipe.cfg["adversarial"] == SIZE


def test_size_must_not_be_negative() -> None:
    with pytest.raises(ValueError, match="'ner': adversarial must be at least 0"):
        make_pipeline("piqn_ner", adversarial=-1.0, examples=None)


def test_frozen_encoder_has_nothing_to_move(tiny_bert) -> None:
    nlp = make_pipeline("piqn_ner", bert(tiny_bert, frozen=True), adversarial=SIZE)
    with pytest.raises(ValueError, match="'ner': adversarial training finds no embeddings"):
        learn(nlp)


def test_listener_has_nothing_to_move() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": SMALL_CNN})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": SMALL_CNN["width"]}
    settings = {"@architectures": "spacy_nested_ner.LocateAndLabel.v1", "tok2vec": listener}
    nlp.add_pipe("locate_and_label_ner", config={"model": settings, "adversarial": SIZE})
    nlp.initialize(lambda: make_examples(nlp))
    with pytest.raises(ValueError, match="finds no embeddings that learn"):
        nlp.update(make_examples(nlp))
