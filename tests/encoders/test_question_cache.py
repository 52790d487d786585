"""A prediction takes over the questions as the one before read them, and never stale ones."""

import pickle
from typing import Any, Callable, Dict, List

import numpy as np
import pytest
import spacy
import torch
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.api import Adam, Model, Shim, get_array_module

from spacy_nested_ner.encoders.cross_encoder import build_cross_encoder
from spacy_nested_ner.encoders.protocol import PairEncoderModel, PairInput
from spacy_nested_ner.encoders.sorted_transformer import build_sorted_transformer
from spacy_nested_ner.model.pairs import all_pairs
from spacy_nested_ner.training.optimizer import AdamW
from tests.conftest import small_cnn

QUESTIONS = ["Who?", "Which genes, or promoters?"]
N_WORDS = 2 + 5  # of both questions
TEXT = "human T cells"


class Recorder:
    """Records what a token-to-vector model is called with."""

    def __init__(self, tok2vec: Any) -> None:
        self.texts: List[str] = []
        self.model: Any = Model("recorded", self.forward, init=self.init, layers=[tok2vec])

    def init(self, model: Any, X: Any = None, Y: Any = None) -> None:
        model.layers[0].initialize(X=X)

    def forward(self, model: Any, docs: List[Doc], is_train: bool) -> Any:
        self.texts.extend(doc.text for doc in docs)
        return model.layers[0](docs, is_train)


class Asked:
    """An encoder of pairs on a recorded model, and one input for it."""

    def __init__(self, tok2vec: Any, *, apart: bool = False, vocab: Any = None) -> None:
        spacy.util.fix_random_seed(0)
        self.vocab = vocab or spacy.blank("en").vocab
        self.recorder, self.questions = Recorder(tok2vec), list(QUESTIONS)
        readers = (small_cnn(8), self.recorder.model) if apart else (self.recorder.model, None)
        self.model: PairEncoderModel = build_cross_encoder(
            *readers, 12, depth=1, attention_heads=2, feedforward=2
        )
        self.initialize()

    def initialize(self) -> None:
        X = self.input()
        self.model.initialize(X=(X.docs, X.segments))

    @property
    def reader(self) -> Any:
        """What reads the questions."""
        return self.recorder.model.layers[0]

    @property
    def cross(self) -> Any:
        return self.model.get_ref("cross").shims[0]

    def input(self) -> PairInput:
        doc = Doc(self.vocab, words=TEXT.split())
        n_questions = len(self.questions)
        return PairInput([doc], np.array([(0, 0, 3)]), self.questions, all_pairs(1, n_questions))

    def predict(self) -> torch.Tensor:
        self.recorder.texts.clear()
        with torch.no_grad():
            reading = self.model.predict(self.input())
            return reading.read(np.arange(len(self.questions)))[0]

    @property
    def read_questions(self) -> bool:
        """Whether the last prediction did."""
        return any(text.startswith(("Wh", "Some")) for text in self.recorder.texts)

    def learn(self) -> None:
        """Forward and backward."""
        reading, backprop = self.model(self.input(), is_train=True)
        with torch.enable_grad():
            words, _ = reading.read(np.arange(len(self.questions)))
            (words * torch.arange(12.0, device=words.device)).sum().backward()
        backprop()

    def tensors(self) -> List[torch.nn.Parameter]:
        """Torch's weights, those of the reader first."""
        shims = [shim for node in self.reader.walk() for shim in node.shims]
        return [p for shim in [*shims, self.cross] for p in shim.module.parameters()]

    def step(self) -> None:
        self.learn()
        self.model.finish_update(Adam(0.1))


@pytest.fixture(params=["one reader", "a reader of questions", "a pretrained encoder"])
def asked(request, tiny_bert) -> Asked:
    if request.param == "a pretrained encoder":
        return Asked(build_sorted_transformer(str(tiny_bert)))
    return Asked(small_cnn(8), apart=request.param == "a reader of questions")


def test_questions_are_read_once(asked) -> None:
    first = asked.predict()
    assert asked.read_questions
    second = asked.predict()
    assert not asked.read_questions
    assert torch.equal(first, second)
    asked.cross.question_cache.forget()
    assert torch.equal(asked.predict(), first) and asked.read_questions


def noisy(array: Any) -> Any:
    noise = np.random.normal(0, 0.5, array.shape).astype("f")
    return array + get_array_module(array).asarray(noise)


def some_tensor(asked: Asked) -> torch.nn.Parameter:
    """Of a pretrained encoder, or of the transformer over a tok2vec."""
    return asked.tensors()[0]


def set_param(asked: Asked) -> None:
    node = next(n for n in asked.reader.walk() if n.has_param("W"))
    node.set_param("W", noisy(node.get_param("W")))


def torch_in_place(asked: Asked) -> None:
    with torch.no_grad():
        some_tensor(asked).add_(torch.randn_like(some_tensor(asked)))


def other_tensor(asked: Asked) -> None:
    some_tensor(asked).data = some_tensor(asked).data + torch.randn_like(some_tensor(asked))


def load_state_dict(asked: Asked) -> None:
    module = asked.cross.module
    module.load_state_dict({name: value + 0.5 for name, value in module.state_dict().items()})


def from_bytes(asked: Asked) -> None:
    reload(asked, asked.model)


def reader_from_bytes(asked: Asked) -> None:
    """As `init_tok2vec` does."""
    reload(asked, asked.reader)


def cross_from_bytes(asked: Asked) -> None:
    reload(asked, asked.cross)


def reload(asked: Asked, part: Any) -> None:
    """Give a model or shim other weights from bytes, after a prediction with its own."""
    own = part.to_bytes()
    for model in [part] if isinstance(part, Model) else []:
        for node in model.walk():
            for name in node.param_names:
                if node.has_param(name):
                    node.set_param(name, noisy(node.get_param(name)))
    with torch.no_grad():
        for parameter in asked.tensors():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    other = part.to_bytes()
    part.from_bytes(own)
    asked.predict()
    part.from_bytes(other)


def initialize(asked: Asked) -> None:
    spacy.util.fix_random_seed(1)
    for node in asked.reader.walk():  # Thinc keeps weights that are there
        for name in node.param_names:
            if node.has_param(name):
                node.set_param(name, np.zeros_like(node.get_param(name)))
    asked.initialize()


def other_questions(asked: Asked) -> None:
    asked.questions[1] = "Some cells?"


def a_new_question(asked: Asked) -> None:
    asked.questions.append("Some cells?")


def step(asked: Asked) -> None:
    asked.step()


def step_after_a_prediction(asked: Asked) -> None:
    asked.learn()
    asked.predict()
    asked.model.finish_update(Adam(0.1))


def a_step_that_is_applied_late(asked: Asked) -> None:
    """`AdamW` changes weights when it is told that the step is over."""
    optimizer = AdamW(0.1)
    asked.learn()
    asked.model.finish_update(optimizer)
    asked.predict()
    optimizer.flush()


CHANGES: List[Callable[[Asked], None]] = [
    *(torch_in_place, other_tensor, load_state_dict),
    *(from_bytes, reader_from_bytes, cross_from_bytes, initialize),
    *(other_questions, a_new_question),
    *(step, step_after_a_prediction, a_step_that_is_applied_late),
]


def assert_up_to_date(asked: Asked, change: Callable[[Asked], None]) -> None:
    before = asked.predict()
    change(asked)
    after = [asked.predict() for _ in range(2)]
    assert before.shape != after[0].shape or not torch.allclose(before, after[0], atol=1e-3)
    asked.cross.question_cache.forget()
    fresh = asked.predict()
    assert asked.read_questions
    assert torch.equal(after[0], fresh) and torch.equal(after[1], fresh)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_nothing_stale_after(asked, change) -> None:
    assert_up_to_date(asked, change)


@pytest.mark.parametrize("apart", [False, True])
def test_nothing_stale_after_other_weights_of_a_layer(apart) -> None:
    assert_up_to_date(Asked(small_cnn(8), apart=apart), set_param)


def test_nothing_stale_after_another_setting(tiny_bert) -> None:
    def pool(asked: Asked) -> None:
        asked.reader.attrs["word_pooling"] = "max"

    assert_up_to_date(Asked(build_sorted_transformer(str(tiny_bert))), pool)


def test_nothing_stale_after_other_static_vectors() -> None:
    vocab = Vocab()
    for word in ["Which", "genes", "promoters"]:
        vocab.set_vector(word, np.ones(4, dtype="f"))

    def set_vector(asked: Asked) -> None:
        asked.vocab.set_vector("genes", np.arange(4, dtype="f"))

    assert_up_to_date(Asked(small_cnn(8, vectors=True), vocab=vocab), set_vector)


def averages(asked: Asked) -> Dict[Any, np.ndarray]:
    """Other weights, as an optimizer keys its averages."""
    found = {}
    for node in asked.model.walk():
        for name in node.param_names:
            if node.has_param(name):
                found[node.id, name] = noisy(node.get_param(name))
        for shim in node.shims:
            for name, parameter in shim.module.named_parameters():
                found[shim.id, name] = noisy(parameter.detach().cpu().numpy())
    return found


def test_averaged_weights_count_within_their_context_alone(asked) -> None:
    before = asked.predict()
    first, second = averages(asked), averages(asked)
    for weights in (first, second, first):
        with asked.model.use_params(weights):
            within = [asked.predict() for _ in range(2)]
            asked.cross.question_cache.forget()
            fresh = asked.predict()
        assert torch.equal(within[0], fresh) and torch.equal(within[1], fresh)
        assert not torch.allclose(fresh, before, atol=1e-3)
        assert torch.equal(asked.predict(), before) and torch.equal(asked.predict(), before)


def test_weights_that_have_moved_are_read_again(asked) -> None:
    """As `to_device` moves them: the same values in other memory."""
    before = asked.predict()
    tensor = some_tensor(asked)
    tensor.data = tensor.data.clone()
    assert torch.equal(asked.predict(), before) and asked.read_questions


def test_a_model_that_has_learned_keeps_them_from_its_next_loading(asked) -> None:
    asked.step()
    for _ in range(2):
        asked.predict()
        assert asked.read_questions
    asked.model.from_bytes(asked.model.to_bytes())
    asked.predict()
    asked.predict()
    assert not asked.read_questions


def test_nothing_of_it_is_pickled(asked) -> None:
    before = len(pickle.dumps(asked.cross))
    asked.predict()
    assert len(pickle.dumps(asked.cross)) == before


def test_weights_of_an_unknown_kind_are_not_trusted() -> None:
    """Another library's, in a shim that holds no torch module."""

    class Foreign(Shim):
        def to_bytes(self) -> bytes:
            return b""

    asked = Asked(small_cnn(8))
    asked.recorder.model.shims.append(Foreign(object()))
    for _ in range(2):
        asked.predict()
        assert asked.read_questions
