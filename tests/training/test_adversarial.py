"""Learning from perturbed embeddings."""

from typing import Any, Dict, List

import numpy as np
import pytest
import spacy
import torch
from spacy.language import Language
from spacy.util import fix_random_seed
from thinc.util import torch2xp

from spacy_nested_ner.model.head_model import head_shim
from spacy_nested_ner.training.adversarial import Table, embedding_tables, perturbed
from tests.conftest import HASH_EMBED, QUESTIONS, SMALL_CNN, make_examples, make_pipeline, train

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


def gradients_left(pipe: Any) -> Dict[Any, np.ndarray]:
    """All gradients of a pipe that are not zero, by place and name."""
    found = {}
    for i, node in enumerate(pipe.model.walk()):
        found.update({(i, n): node.get_grad(n) for n in node.param_names if node.has_grad(n)})
        for shim in node.shims:
            named = shim.module.named_parameters()
            found.update({(i, n): torch2xp(p.grad) for n, p in named if p.grad is not None})
    return {key: gradient.copy() for key, gradient in found.items() if gradient.any()}


def test_beside_a_pretrained_encoder_hashed_embeddings_rest(tiny_bert) -> None:
    hybrid = {"@architectures": "spacy_nested_ner.HybridEncoder.v1", "embed": HASH_EMBED}
    pipe = learn(make_pipeline(model={"tok2vec": {**hybrid, **bert(tiny_bert)}}))
    (table,) = embedding_tables(pipe.model)
    (pieces,) = embedding_tables(learn(make_pipeline(model=bert(tiny_bert))).model)
    assert table.weights.shape == pieces.weights.shape


@pytest.mark.parametrize("encoder", ["hashed", "pretrained"])
def test_update_adds_gradients_at_the_perturbed_embeddings(encoder, tiny_bert) -> None:
    # In float32, in which gradients add up on any hardware.
    model = bert(tiny_bert, mixed_precision=False) if encoder == "pretrained" else {}
    nlp = make_pipeline("locate_and_label_ner", model)
    pipe = learn(nlp)
    here, before = gradients_of(pipe), weights_of(pipe)
    norm = sum(float((table.gradient**2).sum()) for table in embedding_tables(pipe.model)) ** 0.5
    for table in embedding_tables(pipe.model):
        table.weights.add_(SIZE * table.gradient / norm)
    moves = [after - old for after, old in zip(weights_of(pipe), before)]
    moved = sum(float((move**2).sum()) for move in moves) ** 0.5
    assert moved == pytest.approx(SIZE, abs=1e-4)
    pipe.update(make_examples(nlp))  # adds to the gradients of the first pass
    both = gradients_of(pipe)
    assert not all(np.allclose(total, 2 * first) for total, first in zip(both, here))
    other = learn(make_pipeline("locate_and_label_ner", model, adversarial=SIZE))
    for total, found in zip(both, gradients_of(other)):
        np.testing.assert_allclose(found, total, rtol=1e-3, atol=1e-5)


def test_embeddings_are_back_after_an_update(make) -> None:
    plain, adversarial = make(), make(adversarial=SIZE)
    for nlp in (plain, adversarial):
        learn(nlp)
    for one, other in zip(*(weights_of(nlp.get_pipe("ner")) for nlp in (plain, adversarial))):
        np.testing.assert_array_equal(one, other)


def test_perturbed_embeddings_have_a_higher_loss_and_come_back_after_an_error() -> None:
    nlp = make_pipeline("locate_and_label_ner")
    pipe, examples = learn(nlp), make_examples(nlp)
    before, weights = pipe.get_loss(examples, None)[0], weights_of(pipe)
    with pytest.raises(KeyError), perturbed(embedding_tables(pipe.model), SIZE):
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
    with pytest.raises(ValueError, match="'ner': adversarial must be a number of at least 0"):
        make_pipeline("piqn_ner", adversarial=-1.0, examples=None)


def test_frozen_encoder_is_refused(tiny_bert) -> None:
    nlp = make_pipeline("piqn_ner", bert(tiny_bert, frozen=True), adversarial=SIZE)
    problem = "'ner': adversarial training finds no trainable embeddings"
    with pytest.raises(ValueError, match=problem):
        learn(nlp)


def test_a_frozen_encoder_beside_hashed_embeddings_is_refused(tiny_bert) -> None:
    hybrid = {"@architectures": "spacy_nested_ner.HybridEncoder.v1", "embed": HASH_EMBED}
    encoder = {"tok2vec": {**hybrid, **bert(tiny_bert, frozen=True)}}
    nlp = make_pipeline("piqn_ner", encoder, adversarial=SIZE)
    with pytest.raises(ValueError, match="'ner': adversarial training finds no trainable"):
        learn(nlp)


def test_listener_is_refused() -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": SMALL_CNN})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": SMALL_CNN["width"]}
    settings = {"@architectures": "spacy_nested_ner.LocateAndLabel.v1", "tok2vec": listener}
    nlp.add_pipe("locate_and_label_ner", config={"model": settings, "adversarial": SIZE})
    nlp.initialize(lambda: make_examples(nlp))
    with pytest.raises(ValueError, match=r"'locate_and_label_ner': .*listener"):
        nlp.update(make_examples(nlp))


def test_listener_beside_an_encoder_that_learns_is_refused() -> None:
    """Its gradient would be there three times, where one and one make two."""
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": SMALL_CNN})
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": SMALL_CNN["width"]}
    settings = {
        "@architectures": "spacy_nested_ner.MRC.v1",
        "tok2vec": listener,
        "question_tok2vec": SMALL_CNN,
        "questions": QUESTIONS,
    }
    nlp.add_pipe("mrc_ner", name="ner", config={"model": settings, "adversarial": SIZE})
    nlp.initialize(lambda: make_examples(nlp))
    with pytest.raises(ValueError, match=r"'ner': .*listener.*replace_listeners"):
        nlp.update(make_examples(nlp))
    nodes = [node for _, pipe in nlp.pipeline for node in pipe.model.walk()]
    assert not any(node.has_grad(name) for node in nodes for name in node.param_names)


@pytest.mark.parametrize("encoder", ["hashed", "pretrained"])
def test_parts_of_an_accumulated_batch_add_up(encoder, tiny_bert) -> None:
    """Each part perturbs the embeddings along its own gradient, whatever was accumulated before."""
    model = bert(tiny_bert) if encoder == "pretrained" else {}
    halves = slice(0, 5), slice(5, 10)

    def learn_half(nlp: Language, half: slice) -> None:
        fix_random_seed(1)  # the same dropout for the same half
        nlp.get_pipe("ner").update(make_examples(nlp)[half], sgd=False)

    parts = []
    for half in halves:
        nlp = make_pipeline("locate_and_label_ner", model, adversarial=SIZE)
        learn_half(nlp, half)
        parts.append(gradients_of(nlp.get_pipe("ner")))
    nlp = make_pipeline("locate_and_label_ner", model, adversarial=SIZE)
    for half in halves:
        learn_half(nlp, half)
    for one, other, both in zip(*parts, gradients_of(nlp.get_pipe("ner"))):
        np.testing.assert_allclose(both, one + other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("encoder", ["hashed", "pretrained"])
@pytest.mark.parametrize("accumulated", [False, True])
def test_an_error_in_the_second_half_leaves_no_gradient(encoder, accumulated, tiny_bert) -> None:
    model = bert(tiny_bert) if encoder == "pretrained" else {}
    nlp = make_pipeline("locate_and_label_ner", model, adversarial=SIZE)
    pipe, examples = nlp.get_pipe("ner"), make_examples(nlp)
    if accumulated:
        pipe.update(examples[:5])
    expected = gradients_left(pipe)
    calls = []

    def fail_at_the_second(module: Any, args: Any) -> None:
        calls.append(module)
        if len(calls) == 2:
            raise RuntimeError("out of memory")

    head_shim(pipe.model).module.register_forward_pre_hook(fail_at_the_second)
    with pytest.raises(RuntimeError, match="out of memory"):
        pipe.update(examples)
    left = gradients_left(pipe)
    assert len(calls) == 2 and bool(expected) == accumulated
    assert left.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_array_equal(left[name], gradient)


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_gradients_whose_squares_no_float_holds(size: float) -> None:
    gradient = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]) * size
    table = Table(torch.zeros(3, 2), gradient)
    with perturbed([table, Table(torch.zeros(1, 1), torch.zeros(1, 1))], SIZE):
        found = table.weights.clone()
    assert found.flatten().tolist() == pytest.approx([0, 0, 0.6 * SIZE, 0, 0, 0.8 * SIZE])
    assert not table.weights.any()


def test_without_a_gradient_nothing_moves() -> None:
    table = Table(torch.ones(2, 2), torch.zeros(2, 2))
    with perturbed([table], SIZE):
        assert table.weights.eq(1).all()
