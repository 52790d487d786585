"""Pieces that a pretrained encoder reads as its mask while it learns."""

import numpy as np
import pytest
import torch
from spacy.util import fix_random_seed

from spacy_nested_ner.encoders.pair_encoder import build_pair_encoder, pair_shim
from spacy_nested_ner.encoders.protocol import PairInput
from spacy_nested_ner.encoders.sorted_transformer import build_sorted_transformer, encoder_shim
from tests.conftest import SMALL_MODELS, make_examples, make_pipeline
from tests.encoders.test_sorted_transformer import make_docs

pytest.importorskip("transformers")

# Two docs of as many pieces, which the tiny encoders know.
TEXTS = ["a B", ", ."]


def make_model(directory: str, **settings):
    model = build_sorted_transformer(directory, mixed_precision=False, **settings)
    model.initialize()
    without_dropout(encoder_shim(model).module)
    return model


def without_dropout(module: torch.nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0


def test_masked_texts_of_one_shape_are_alike(directory) -> None:
    """Where all pieces are masked nothing is left of the words; without masks, in prediction and
    with frozen layers they are told apart."""
    docs = make_docs(TEXTS)
    for share, frozen_layers, alike in ((1.0, 0, True), (0.0, 0, False), (1.0, 1, False)):
        model = make_model(directory, masked_pieces=share, frozen_layers=frozen_layers)
        one, other = model(docs, is_train=True)[0]
        assert np.allclose(one, other, atol=1e-5) == alike
        one, other = model.predict(docs)
        assert not np.allclose(one, other, atol=1e-3)


@pytest.mark.parametrize("joint_layers", [0, 1])
def test_questions_are_not_masked(directory, joint_layers) -> None:
    """Masked texts of one shape are alike under one question, and not under two."""
    model = build_pair_encoder(
        directory, joint_layers=joint_layers, mixed_precision=False, masked_pieces=1.0
    )
    docs = make_docs(TEXTS)
    segments = np.array([(i, 0, len(doc)) for i, doc in enumerate(docs)])
    model.initialize(X=(docs, segments))
    without_dropout(pair_shim(model).module)
    pair_shim(model).module.config.attention_probs_dropout_prob = 0.0
    X = PairInput(docs, segments, ["a", "."], np.array([(0, 0), (1, 0), (0, 1)]))
    words = model(X, is_train=True)[0].read(np.arange(3))[0].detach().numpy()
    np.testing.assert_allclose(words[0], words[1], atol=1e-5)
    assert np.abs(words[0] - words[2]).max() > 1e-3


def test_pairs_that_all_layers_read_together(directory) -> None:
    with pytest.raises(ValueError, match="masked_pieces needs a number of joint_layers"):
        build_pair_encoder(directory, masked_pieces=0.1)


def test_share_of_the_pieces_and_never_the_special_ones(directory) -> None:
    model = make_model(directory)
    own = encoder_shim(build_sorted_transformer(directory).from_bytes(model.to_bytes()))
    cls, sep, mask = (own.special[name] for name in ("cls", "sep", "mask"))
    ids = torch.tensor([cls, *range(10, 30), sep]).repeat(200)
    fix_random_seed(0)
    masked = own.with_masks(ids, 0.2)
    changed = masked != ids
    assert set(masked[changed].tolist()) == {mask}
    assert not changed[(ids == cls) | (ids == sep)].any()
    assert float(changed.sum()) / (200 * 20) == pytest.approx(0.2, abs=0.03)
    assert not torch.equal(own.with_masks(ids, 0.2), masked)


def test_encoder_without_a_mask_token(tiny_bert) -> None:
    model = {
        **SMALL_MODELS["piqn_ner"],
        "tok2vec": {
            "@architectures": "spacy_nested_ner.SortedTransformer.v1",
            "name": str(tiny_bert),
            "masked_pieces": 0.5,
        },
    }
    nlp = make_pipeline("piqn_ner", model)
    tok2vec = nlp.get_pipe("ner").model.get_ref("tok2vec")
    del encoder_shim(tok2vec).special["mask"]
    with pytest.raises(ValueError, match=r"no mask token.*Set masked_pieces to 0"):
        nlp.update(make_examples(nlp))
    tok2vec.attrs["masked_pieces"] = 0.0
    assert nlp.update(make_examples(nlp))["ner"] > 0
