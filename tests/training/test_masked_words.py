"""What an encoder guesses while it adapts to raw text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Tuple

import numpy as np
import pytest
import torch
from spacy.util import fix_random_seed

from spacy_nested_ner.encoders.pretrained import PretrainedShim
from spacy_nested_ner.training import adapt
from tests.encoders.encoders import TEXTS, save_encoder

TEXT = TEXTS[-1]


@pytest.fixture(scope="module", params=["bert", "roberta"])
def loaded(request, tmp_path_factory) -> Tuple[Any, Any]:
    """A model that guesses, and its tokenizer."""
    folder = tmp_path_factory.mktemp("encoder") / request.param
    name = save_encoder(folder, request.param)
    fix_random_seed(0)
    model, tokenizer = PretrainedShim(adapt.ADAPT, name, None).load_masked()
    return model.eval(), tokenizer


def test_a_text_is_read_whole(loaded) -> None:
    tokenizer = loaded[1]
    whole = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    ends = (tokenizer.cls_token_id, tokenizer.sep_token_id)
    for longest in (5, 9, 200):
        parts = list(adapt.cut_parts(tokenizer, TEXT, longest))
        assert all(len(part.pieces) == len(part.words) <= longest for part in parts)
        assert {(part.pieces[0], part.pieces[-1]) for part in parts} == {ends}
        assert [piece for part in parts for piece in part.pieces[1:-1]] == whole
    assert not list(adapt.cut_parts(tokenizer, "", 9))
    mask = tokenizer.mask_token
    (part,) = adapt.cut_parts(tokenizer, f"{mask} gene {tokenizer.sep_token}", 200)
    special = [tokenizer.mask_token_id, tokenizer.sep_token_id]
    assert not np.isin(part.pieces[1:-1], special).any()  # they are text here


def test_whole_words_are_hidden(loaded) -> None:
    tokenizer = loaded[1]
    fix_random_seed(0)
    parts = [part for text in TEXTS for part in adapt.cut_parts(tokenizer, text, 200)]
    words = hidden_words = 0
    for _ in range(100):
        pieces, mask, hidden = adapt.hide(tokenizer, parts)
        assert pieces.shape[1] % adapt.LENGTHS == 0
        assert (pieces[~mask] == tokenizer.pad_token_id).all() and not hidden[~mask].any()
        for part, row in zip(parts, hidden.tolist()):
            drawn = {word for word, is_hidden in zip(part.words, row) if is_hidden}
            assert row[: len(part.words)] == [word in drawn for word in part.words]
            assert -1 not in drawn  # the ends of a text
            words, hidden_words = words + len(set(part.words)) - 1, hidden_words + len(drawn)
    assert hidden_words / words == pytest.approx(adapt.HIDDEN, abs=0.02)


def test_every_part_is_in_one_step() -> None:
    fix_random_seed(0)
    lengths = np.array([3 + i * 7 % 250 for i in range(5000)])
    steps = adapt.cut_steps(lengths)
    assert sorted(index for step in steps for index in step) == list(range(5000))
    padded = [len(step) * max(lengths[i] for i in step) for step in steps]
    assert max(padded) <= adapt.STEP_PIECES
    assert sum(padded) < 1.05 * sum(lengths)  # those of a step are of about one length


def test_hidden_pieces_are_guessed_without_being_seen(loaded, monkeypatch) -> None:
    """The loss is Hugging Face's own of the same model, on what was shown."""
    model, tokenizer = loaded
    fix_random_seed(0)
    parts = 50 * [part for text in TEXTS for part in adapt.cut_parts(tokenizer, text, 200)]
    pieces, mask, hidden = adapt.hide(tokenizer, parts)
    seen: List[torch.Tensor] = []
    rows: List[int] = []
    count = adapt.head_of(model).register_forward_pre_hook(
        lambda _, args: rows.append(len(args[0]))
    )
    keep = model.base_model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True
    )
    monkeypatch.setattr(adapt, "has_bfloat16", lambda _: False)
    found = adapt.loss_of(model, pieces, mask, hidden, tokenizer, "cpu")
    keep.remove()
    count.remove()
    (shown,), (scored,) = seen, rows
    assert scored % adapt.ROWS == 0 and 0 <= scored - int(hidden.sum()) < adapt.ROWS
    assert torch.equal(shown[~hidden], pieces[~hidden])
    is_mask, is_same = shown[hidden] == tokenizer.mask_token_id, (shown == pieces)[hidden]
    assert is_mask.float().mean().item() == pytest.approx(adapt.MASKED, abs=0.05)
    assert is_same.float().mean().item() == pytest.approx(0.1, abs=0.04)
    labels = pieces.masked_fill(~hidden, -100)
    with torch.no_grad():
        expected = model(input_ids=shown, attention_mask=mask, labels=labels).loss
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_head_that_was_not_saved_begins_as_if_it_were_not_there(loaded, tmp_path: Path) -> None:
    model, tokenizer = loaded
    (dense,) = (each for name, each in adapt.head_of(model).named_parameters() if "dense.w" in name)
    assert torch.equal(dense, torch.eye(len(dense)))
    # One that was saved is taken as it is.
    with torch.no_grad():
        dense[0, 1] = 0.5
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "with_head")
    again, _ = PretrainedShim(adapt.ADAPT, str(tmp_path / "with_head"), None).load_masked()
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    with torch.no_grad():
        dense[0, 1] = 0.0
