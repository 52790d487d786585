"""A pretrained encoder goes on learning from raw text of one domain before it learns entities
(Gururangan et al. 2020, *Don't Stop Pretraining*): it guesses masked words (Devlin et al. 2019)."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from statistics import fmean
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spacy_nested_ner.encoders.batching import cut_batches
from spacy_nested_ner.encoders.pretrained import PretrainedShim
from spacy_nested_ner.encoders.shim import has_bfloat16
from spacy_nested_ner.training.schedules import warmup_linear

# What the errors of an encoder that cannot be read begin with.
ADAPT = "nested-ner adapt"
# Of the words, whole ones: what of them is hidden is all of their pieces (Devlin et al. 2019: 0.15
# of the pieces). Of the hidden pieces, as there: 0.8 masked, 0.1 replaced, 0.1 left.
HIDDEN, MASKED, REPLACED = 0.2, 0.8, 0.1
# A text without blanks (Chinese, Japanese, Thai) is one word to a tokenizer that knows no other end
# of one: what has more than LONG pieces is cut every so many, rare words of other texts, too.
LONG, CUT = 8, 4
# Longest part of a text, and padded pieces of a step.
LONGEST, STEP_PIECES = 256, 2400
# What lengths of parts and numbers of hidden pieces are rounded up to. Tensors that are of new
# shapes in every step leave gaps of memory behind: GiB of them after some hundred steps.
LENGTHS, ROWS = 8, 64
WARMUP, WEIGHT_DECAY, CLIP = 0.06, 0.01, 1.0
IGNORED = -100  # in the place of a piece to guess, where there is none
# Texts that are sorted by length before they are cut into steps.
SORTED = 2048


class Part(NamedTuple):
    """Of a text, no longer than the encoder reads at once.

    pieces: ids, those of the ends included. words: number of the word of each piece, -1 for ends.
    Both `(pieces,)` int32: all texts are in memory at once.
    """

    pieces: np.ndarray
    words: np.ndarray


class Losses(NamedTuple):
    """Mean cross-entropy of the hidden pieces, in the first and in the last tenth of the steps."""

    first: float
    last: float


def adapt(
    name: str,
    texts: Iterable[str],
    folder: Path,
    passes: int,
    rate: float,
    device: str = "cpu",
    progress: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Losses:
    """Train an encoder on the texts and save it, with its tokenizer, in the form in which it can be
    loaded by its directory.

    name: directory or hub name. folder: there already, to be filled. passes: over the texts. rate:
    the highest learning rate; it rises at first and then falls linearly to 0. progress: goes
    through the steps.

    Raises ValueError if there is no such encoder or no text to learn from, if its tokenizer has no
    mask, or if the rate is too high.
    """
    encoder = PretrainedShim(ADAPT, name, None)
    model, tokenizer = encoder.load_masked()
    longest = min(LONGEST, encoder.max_pieces) // LENGTHS * LENGTHS
    parts = [part for text in texts for part in cut_parts(tokenizer, text, longest)]
    if not parts:
        raise ValueError("There is no text to learn from.")
    model.to(device).train()
    lengths = np.array([_up(len(part.pieces), LENGTHS) for part in parts])
    steps = [step for _ in range(passes) for step in cut_steps(lengths)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=WEIGHT_DECAY)
    losses: List[float] = []
    for current, step in zip(warmup_linear(rate, WARMUP, len(steps)), progress(steps)):
        for group in optimizer.param_groups:
            group["lr"] = current
        pieces, mask, hidden = hide(tokenizer, [parts[i] for i in step])
        if not hidden.any():
            continue
        loss = loss_of(model, pieces, mask, hidden, tokenizer, device)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            raise ValueError(f"The loss is {losses[-1]}: a learning rate of {rate:g} is too high.")
    if not losses:
        raise ValueError(
            f"In {passes} passes over {len(parts)} short texts no word was masked, so nothing was "
            "learned. Give more text or more --passes."
        )
    model.base_model.to("cpu").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    tenth = max(1, len(losses) // 10)
    return Losses(fmean(losses[:tenth]), fmean(losses[-tenth:]))


def cut_parts(tokenizer: Any, text: str, longest: int) -> Iterator[Part]:
    """The whole text in parts of at most so many pieces, the two at the ends included."""
    read = tokenizer(
        text,
        add_special_tokens=False,
        split_special_tokens=True,  # "[MASK]" in a text is text
        truncation=False,
        verbose=False,
    )
    words = _cut_words([-1 if word is None else word for word in read.word_ids()])
    first, last, room = tokenizer.cls_token_id, tokenizer.sep_token_id, longest - 2
    for begin in range(0, len(words), room):
        pieces = [first, *read["input_ids"][begin : begin + room], last]
        of_words = [-1, *words[begin : begin + room], -1]
        yield Part(np.array(pieces, dtype=np.int32), np.array(of_words, dtype=np.int32))


def _cut_words(words: Sequence[int]) -> List[int]:
    """The number of the word of each piece, -1 for none, anew where long ones are cut."""
    cut: List[int] = []
    number = -1
    for word, group in itertools.groupby(words):
        length = len(list(group))
        for place in range(length):
            number += place % (CUT if length > LONG else length) == 0
            cut.append(word if word < 0 else number)
    return cut


def cut_steps(lengths: np.ndarray) -> List[np.ndarray]:
    """Indices of the parts of each step of one pass, in random order; those of a step are of about
    one length. lengths: `(parts,)` int."""
    order = np.random.permutation(len(lengths))
    chunks = [order[begin : begin + SORTED] for begin in range(0, len(order), SORTED)]
    steps = [chunk[step] for chunk in chunks for step in cut_batches(lengths[chunk], STEP_PIECES)]
    random.shuffle(steps)
    return steps


def hide(tokenizer: Any, parts: Sequence[Part]) -> Tuple[Tensor, Tensor, Tensor]:
    """Pieces, `(parts, columns)` long; and bool of that shape, what is no padding and which pieces
    are to be guessed: those of words drawn at random."""
    columns = _up(max(len(part.pieces) for part in parts), LENGTHS)
    pieces = torch.full((len(parts), columns), tokenizer.pad_token_id)
    mask = torch.zeros(len(parts), columns, dtype=torch.bool)
    hidden = torch.zeros_like(mask)
    for row, part in enumerate(parts):
        length, words = len(part.pieces), np.unique(part.words[part.words >= 0])
        drawn = words[np.random.random_sample(len(words)) < HIDDEN]
        pieces[row, :length] = torch.from_numpy(part.pieces)
        mask[row, :length] = True
        hidden[row, :length] = torch.from_numpy(np.isin(part.words, drawn))
    return pieces, mask, hidden


def loss_of(
    model: Any, pieces: Tensor, mask: Tensor, hidden: Tensor, tokenizer: Any, device: str
) -> Tensor:
    """Mean cross-entropy of the hidden pieces; see `hide`."""
    wanted = pieces[hidden]
    draw = torch.rand(len(wanted))
    shown = torch.where(draw < MASKED, torch.tensor(tokenizer.mask_token_id), wanted)
    others = torch.randint(len(tokenizer), (len(wanted),))
    pieces = pieces.clone()
    pieces[hidden] = torch.where(draw >= 1 - REPLACED, others, shown)
    kind = torch.device(device).type
    with torch.autocast(kind, dtype=torch.bfloat16, enabled=has_bfloat16(kind)):
        read = model.base_model(input_ids=pieces.to(device), attention_mask=mask.to(device))
        # Only what is hidden: the scores of all pieces of the vocabulary are large.
        states = read.last_hidden_state[hidden.to(device)]
        spare = _up(len(wanted), ROWS) - len(wanted)
        logits = head_of(model)(F.pad(states, (0, 0, 0, spare)))
    wanted = F.pad(wanted, (0, spare), value=IGNORED).to(device)
    return F.cross_entropy(logits.float(), wanted, ignore_index=IGNORED)


def head_of(model: Any) -> nn.Module:
    """What scores the pieces of the vocabulary, in BERT and in RoBERTa."""
    head: nn.Module = model.cls if hasattr(model, "cls") else model.lm_head
    return head


def _up(number: int, step: int) -> int:
    """The next multiple of the step."""
    return -(-number // step) * step
