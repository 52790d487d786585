"""Seconds of passes over docs: of a pipeline, of its encoder alone, and of training steps. CPU
time; where a GPU is in use, the time until it is done."""

from functools import partial
from typing import Any, Callable, Dict, List

from spacy.language import Language
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch
from spacy_transformers.layers import TransformerListener

from benchmarks.harness import Stopwatch
from spacy_nested_ner.comparison.trainings import bare
from spacy_nested_ner.encoders.pair_encoder import pair_shim
from spacy_nested_ner.encoders.protocol import PairEncoderModel
from spacy_nested_ner.encoders.sorted_transformer import (
    SortedTransformer,
    build_sorted_transformer,
)

# Gradients alone. spaCy takes it, its types do not.
NO_OPTIMIZER: Any = False
LISTENERS = (Tok2VecListener, TransformerListener)


def seconds(nlp: Language, docs: List[Doc], batch_size: int) -> float:
    """CPU time of one pass over fresh copies of the docs."""
    fresh = [bare(nlp, doc) for doc in docs]
    with Stopwatch() as watch:
        for _ in nlp.pipe(fresh, batch_size=batch_size):
            pass
    return watch.used


def passes_of(nlp: Language, docs: List[Doc], batch_size: int) -> Dict[str, Callable[[], float]]:
    """Passes of the encoder alone and of the whole pipeline, to be run in turn."""
    return {
        "encoder": partial(encoder_seconds, nlp, docs, batch_size),
        "whole": partial(seconds, nlp, docs, batch_size),
    }


def training_seconds(
    nlp: Language, docs: List[Doc], optimizer: Any = NO_OPTIMIZER, batch_size: int = 16
) -> float:
    """CPU time of updates; without the optimizer, which all have alike, if it is not given."""
    with Stopwatch() as watch:
        for batch in minibatch(docs, batch_size):
            nlp.update([Example(bare(nlp, doc), doc) for doc in batch], sgd=optimizer)
            if optimizer:
                optimizer.step_schedules()
    return watch.used


def encoder_seconds(nlp: Language, docs: List[Doc], batch_size: int) -> float:
    """CPU time of the encoder alone; an encoder of pairs reads each sentence once."""
    last = nlp.pipe_names[-1]
    pipe: Any = nlp.get_pipe(last)
    tok2vec = pipe.model.get_ref("tok2vec")
    if isinstance(tok2vec, PairEncoderModel):
        tok2vec = of_sentences(tok2vec)
    if isinstance(tok2vec, LISTENERS):
        with nlp.select_pipes(disable=[last]):
            return seconds(nlp, docs, batch_size)
    return pass_seconds(tok2vec, [bare(nlp, doc) for doc in docs], batch_size)


def pass_seconds(model: Any, docs: List[Doc], batch_size: int, is_train: bool = False) -> float:
    """CPU time of one pass of a tok2vec over the docs; in training forward and backward."""
    with Stopwatch() as watch:
        for batch in minibatch(docs, batch_size):
            if is_train:
                vectors, backprop = model(batch, is_train=True)
                backprop(vectors)
            else:
                model.predict(batch)
    return watch.used


def of_sentences(pairs: PairEncoderModel) -> SortedTransformer:
    """The pretrained encoder of an encoder of pairs as one of sentences alone."""
    model = build_sorted_transformer("is built already")
    model.shims[0] = pair_shim(pairs)
    return model
