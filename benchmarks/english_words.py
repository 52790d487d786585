"""Make the table of assets/english_words, the vectors of English words that `EnglishCNN` reads.

python -m benchmarks.english_words all-MiniLM-L6-v2 corpus/genia/train.spacy corpus/litbank/train.spacy

The encoder is a folder or hub name, with the tokenizer of BERT in lower case. The words of the data
that have several pieces show how the vector of a word follows from those of its pieces.
"""  # noqa: E501

from pathlib import Path
from typing import Annotated, Any, List, Sequence

import numpy as np
import spacy
import torch
import typer
from safetensors.numpy import save_file
from transformers import AutoModel, AutoTokenizer

from spacy_nested_ner.corpora.docbin import read_docs
from spacy_nested_ner.encoders.english_words import PIECES, TENSORS
from spacy_nested_ner.training.vectors import principal_components

FOLDER = Path(__file__).parents[1] / "assets" / "english_words"
WIDTH, BATCH = 128, 512
RIDGE = 1.0  # thousands of words against a matrix of WIDTH x WIDTH: it hardly matters
LARGEST = 127  # of int8


def main(
    encoder: str,
    data: List[Path],
    output: Annotated[Path, typer.Option(help="Folder")] = FOLDER,
) -> None:
    """Write the pieces and the tensors."""
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModel.from_pretrained(encoder).eval()
    special = set(tokenizer.all_special_tokens)
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    pieces = [
        (piece, number)
        for piece, number in vocab
        if piece not in special and not piece.startswith("[unused")
    ]
    row_of = {number: row for row, (_, number) in enumerate(pieces)}
    cut = [tokenizer.convert_tokens_to_ids(tokenizer.tokenize(word)) for word in words(data)]
    cut = [numbers for numbers in cut if len(numbers) > 1 and set(numbers) <= row_of.keys()]
    found = states(tokenizer, model, [*([number] for _, number in pieces), *cut])
    vectors = principal_components(found, WIDTH)
    alone, together = vectors[: len(pieces)], vectors[len(pieces) :]
    means = np.stack([alone[[row_of[n] for n in numbers]].mean(axis=0) for numbers in cut])
    mapping = fitted(means, together).astype(np.float32)
    scale = (np.abs(alone).max(axis=0) / LARGEST).astype(np.float32)
    tensors = {
        "vectors": np.rint(alone / scale).astype(np.int8),
        "scale": scale,
        "mapping": mapping,
    }
    lines = "".join(f"{piece}\n" for piece, _ in pieces)
    (output / PIECES).write_text(lines, encoding="utf8", newline="\n")
    save_file(tensors, output / TENSORS)
    other = np.arange(len(cut)) % 4 == 0
    lost = means[other] @ fitted(means[~other], together[~other]) - together[other]
    share = 1 - (lost**2).sum() / (together[other] ** 2).sum()
    typer.echo(
        f"{len(pieces):,} pieces; of {len(cut):,} words of several, fitted to three quarters, they "
        f"explain {share:.1%} of the others' mean square"
    )


def fitted(means: np.ndarray, together: np.ndarray) -> np.ndarray:
    """`(width, width)`: maps means over pieces, `(words, width)`, to vectors of the words."""
    square = means.T @ means + RIDGE * np.eye(means.shape[1])
    return np.linalg.solve(square, means.T @ together)


def words(data: Sequence[Path]) -> List[str]:
    """The distinct words of data, in lower case."""
    vocab = spacy.blank("en").vocab
    docs = (doc for path in data for doc in read_docs(path, vocab))
    return sorted({token.lower_ for doc in docs for token in doc if not token.is_space})


def states(tokenizer: Any, model: Any, rows: Sequence[List[int]]) -> np.ndarray:
    """`(rows, h) float32`: of each row of pieces, which are read alone, the mean of the last layer
    over them."""
    found = []
    for begin in range(0, len(rows), BATCH):
        part = rows[begin : begin + BATCH]
        framed = [[tokenizer.cls_token_id, *row, tokenizer.sep_token_id] for row in part]
        batch = tokenizer.pad({"input_ids": framed}, return_tensors="pt")
        with torch.inference_mode():
            last = model(**batch).last_hidden_state
        found += [last[i, 1 : len(row) + 1].mean(dim=0).numpy() for i, row in enumerate(part)]
    return np.stack(found)


if __name__ == "__main__":
    typer.run(main)
