"""Tiny encoders of both families, with tokenizers made for a few texts."""

from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WIDTH = 16
TEXTS = [
    "IL-2 gene expression requires reactive oxygen production by 5-lipoxygenase .",
    "The human T cells , which express NF-kappa B .",
    "a",
    "promoter of the interleukin 2 receptor alpha gene in human T cells and B cells today",
]
SPECIAL_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LONGER_PIECES = ["cells", "expres", "gene", "hu", "man", "in", "re", "pr", "he", "io", "ct", "an"]


def wordpiece_tokenizer():
    # Not trained: the trainer breaks ties by chance, so each process would get other pieces.
    pieces = [*SPECIAL_PIECES, *sorted(set("".join(TEXTS)) - {" "}), *LONGER_PIECES]
    pieces += [f"##{piece}" for piece in pieces[len(SPECIAL_PIECES) :] if piece.isalpha()]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=False)
    plain = with_special_pieces(tokenizer, "[CLS]", "[SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
    return transformers.BertTokenizerFast(tokenizer_object=plain, model_max_length=512)


def byte_level_tokenizer():
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        TEXTS, vocab_size=330, min_frequency=1, special_tokens=special, show_progress=False
    )
    plain = with_special_pieces(tokenizer, "<s>", "</s>", "<s> $A </s> </s> $B </s>")
    return transformers.RobertaTokenizerFast(tokenizer_object=plain, model_max_length=512)


def with_special_pieces(tokenizer, first: str, last: str, pair: str):
    """Let Hugging Face's own call, which the tests compare with, add them."""
    plain = tokenizers.Tokenizer.from_str(tokenizer.to_str())
    plain.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=pair,
        special_tokens=[(piece, plain.token_to_id(piece)) for piece in (first, last)],
    )
    return plain


TOKENIZERS = {"bert": wordpiece_tokenizer, "roberta": byte_level_tokenizer}


def save_encoder(path: Path, kind: str, **settings) -> str:
    """A tiny encoder with random weights and a tokenizer for the texts above."""
    tokenizer = TOKENIZERS[kind]()
    tokenizer.save_pretrained(path)
    values = {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 514 if kind == "roberta" else 512,
        "type_vocab_size": 1 if kind == "roberta" else 2,
        "pad_token_id": tokenizer.pad_token_id,
        "initializer_range": 0.3,
    }
    config = transformers.AutoConfig.for_model(kind, **{**values, **settings})
    torch.manual_seed(0)
    transformers.AutoModel.from_config(config).save_pretrained(path)
    return str(path)


def pooled_by_hand(doc, places, states, pool):
    """`(words, h)`: in a plain loop, the pieces that Hugging Face's tokenizer cut each word into.

    places: first character and character after the last of each piece in the text with single
    spaces. states: of the pieces. pool: makes one vector of those of a word.
    """
    rows, begin = [], 0
    for token in doc:
        end = begin + len(token)
        # A piece of RoBERTa's may be the space before the word.
        inside = [i for i, (s, e) in enumerate(places) if s < e and begin <= e <= end]
        rows.append(pool(states[inside]))
        begin = end + 1
    return rows
