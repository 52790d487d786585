"""Words as several papers represent them: contextual vectors beside static vectors, tags and
characters."""

from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.api import Model, get_torch_default_device
from thinc.types import Floats2d
from thinc.util import torch2xp
from torch import Tensor

from spacy_nested_ner.device import on_device
from spacy_nested_ner.encoders.batching import padded_batches
from spacy_nested_ner.encoders.protocol import (
    AnnotationEncoderModel,
    Tok2VecModel,
    check_encoder,
    has_annotation,
    missing_annotation,
    no_backprop,
)
from spacy_nested_ner.encoders.shim import ModuleShim, called_by_its_parent, running
from spacy_nested_ner.encoders.word_features import (
    static_rows,
    tag_keys,
    vectors_width,
    word_forms,
)
from spacy_nested_ner.encoders.words import encode_words, initialize_tok2vec, to_torch
from spacy_nested_ner.layers.dropout import set_dropout
from spacy_nested_ner.layers.hybrid import HybridWords
from spacy_nested_ner.settings import Settings, configured, setting
from spacy_nested_ner.warn import warn

ARCHITECTURE = "spacy_nested_ner.HybridEncoder.v1"

Backprop = Callable[[List[Floats2d]], List[Any]]


@dataclass(frozen=True)
class HybridEncoderSettings(Settings):
    """Of `HybridEncoder.v1`.

    static_vectors: read the static vectors of the pipeline's vocab, which are not trained; a word
        without a vector gets zeros.
    static_width: width of a learned projection of the static vectors, null for none.
    pos_width: width of the part-of-speech embedding, 0 for none.
    pos_attr: part of speech: the "tag" (fine) or the "pos" (coarse) that another component
        predicts. That component must come before this one and, in training, be named in
        `training.annotating_components`, with the tok2vec or transformer that it listens to.
    char_width: width of the character part (even, half per direction), 0 for none: a recurrent
        layer over the word's printable ASCII characters, one symbol for all others, and an end
        mark.
    char_embedding_width: width of the character embedding.
    char_cell: cell of the character part.
    char_pooling: what represents a word: the "mean" over its characters or the "last" state of
        each direction.
    dropout: dropout on static vectors, tags and characters; null follows `training.dropout`. The
        contextual part has its own.
    word_rnn: cell of a recurrent layer along the words of the doc in both directions, null for
        none.
    rnn_width: width of the recurrent layer along the words (even, half per direction), null for
        that of the contextual part.
    rnn_layers: recurrent layers along the words, one on top of the other.
    tok2vec_in_rnn: the recurrent layer along the words reads the contextual part; false: its output
        and the contextual part are concatenated.
    width: width of a last linear layer, null for none.
    batch_words: padded positions that a recurrent layer sees at once; docs and word forms are
        sorted by length.
    """

    static_vectors: bool = setting(False)
    static_width: Optional[int] = setting(None, least=1)
    pos_width: int = setting(0, least=0)
    pos_attr: str = setting("tag", choices=("tag", "pos"))
    char_width: int = setting(0, least=0)
    char_embedding_width: int = setting(50, least=1)
    char_cell: str = setting("lstm", choices=("lstm", "gru"))
    char_pooling: str = setting(
        "mean", choices=("mean", "last"), source="authors' code has the mean"
    )
    dropout: Optional[float] = setting(None, least=0, most=0.99)
    word_rnn: Optional[str] = setting(None, choices=("lstm", "gru"))
    rnn_width: Optional[int] = setting(None, least=1)
    rnn_layers: int = setting(1, least=1)
    tok2vec_in_rnn: bool = setting(True, source="authors' code has false for KBP17")
    width: Optional[int] = setting(None, least=1)
    batch_words: int = setting(1024, least=1)

    def conflict(self) -> Optional[str]:
        wrong = [
            (self.char_width % 2, "char_width must be even, half of it for each direction"),
            ((self.rnn_width or 0) % 2, "rnn_width must be even, half of it for each direction"),
            (self.static_width and not self.static_vectors, "static_width needs static_vectors"),
        ]
        return next((rule for is_wrong, rule in wrong if is_wrong), None)

    @property
    def has_own_parts(self) -> bool:
        """Whether there is another part than the contextual one and the embedding layer."""
        return bool(self.static_vectors or self.pos_width or self.char_width)


@configured(ARCHITECTURE, HybridEncoderSettings)
def build_hybrid_encoder(
    tok2vec: Optional[Model[List[Doc], List[Floats2d]]] = None,
    embed: Optional[Model[List[Doc], List[Floats2d]]] = None,
    *,
    settings: HybridEncoderSettings,
) -> Model[List[Doc], List[Floats2d]]:
    """`spacy_nested_ner.HybridEncoder.v1`: a tok2vec that joins up to five parts per word (Locate
    and Label, section 2.1; proposer-regressor paper, section 3.1; the last one, `embed`, is ours).

    The parameters of all but the contextual part learn at the rate of the head. Raises ValueError
    for settings that contradict each other; when initialised, for vectors that the vocab does not
    have; in training, for docs without tags.

    tok2vec: contextual part, any token-to-vector model or listener; null for none.
    embed: word forms, an embedding layer such as `spacy.MultiHashEmbed.v2`; null for none. Its
        dropout is that of `training.dropout`.
    """
    _check_tok2vec(tok2vec, embed, settings)
    attrs = {name: getattr(settings, name) for name in ("static_vectors", "batch_words")}
    of_module = {k: v for k, v in settings.to_dict().items() if k not in (*attrs, "pos_attr")}
    parts: Model[Any, Any] = Model(
        "hybrid_words",
        called_by_its_parent,
        # Below the parts, so that it learns at their rate.
        layers=[] if embed is None else [embed],
        attrs={"dropout_rate": 0.0},
        shims=[HybridShim(HybridWords, of_module)],
    )
    return AnnotationEncoderModel(
        "hybrid_encoder",
        forward,
        init=init,
        # By position, not by name: a copied model, as replaced listeners are, has no refs.
        layers=[parts] if tok2vec is None else [parts, tok2vec],
        dims={"nO": None},
        attrs={**attrs, "annotation": settings.pos_attr if settings.pos_width else None},
    )


class HybridShim(ModuleShim):
    """Holds the torch half, whose sizes depend on the contextual part and on the vocab."""

    what = "hybrid encoder"


def parts_shim(model: Tok2VecModel) -> HybridShim:
    """The shim that holds the parameters of all parts but the contextual one."""
    return model.layers[0].shims[0]  # type: ignore[return-value]


def _contextual(model: Tok2VecModel) -> Optional[Tok2VecModel]:
    return model.layers[1] if len(model.layers) > 1 else None


def _embed(model: Tok2VecModel) -> Optional[Tok2VecModel]:
    return next(iter(model.layers[0].layers), None)


def _check_tok2vec(
    tok2vec: Optional[Tok2VecModel],
    embed: Optional[Tok2VecModel],
    settings: HybridEncoderSettings,
) -> None:
    own = embed is not None or settings.has_own_parts
    if tok2vec is None and not own:
        raise ValueError(
            f"{ARCHITECTURE}: switch on tok2vec, embed, static_vectors, pos_width or char_width."
        )
    if not settings.tok2vec_in_rnn and not (settings.word_rnn and own):
        raise ValueError(
            f"{ARCHITECTURE}: without tok2vec_in_rnn, a word_rnn and a part that it reads are "
            "needed."
        )
    if tok2vec is None and settings.word_rnn and settings.rnn_width is None:
        raise ValueError(f"{ARCHITECTURE}: word_rnn without a tok2vec needs an rnn_width.")
    check_encoder(tok2vec, f"{ARCHITECTURE}: tok2vec")
    check_encoder(embed, f"{ARCHITECTURE}: embed")


# Initialisation


def init(model: Tok2VecModel, X: Optional[List[Doc]] = None, Y: Any = None) -> None:
    """Initialise the contextual part on the docs and build the others for its width."""
    docs = [doc for doc in X or [] if len(doc)]
    tok2vec_width, embed_width = (
        0 if part is None else initialize_tok2vec(part, docs)
        for part in (_contextual(model), _embed(model))
    )
    static = _static_width(docs) if model.attrs["static_vectors"] else 0
    shim = parts_shim(model)
    settings = shim.settings
    if settings["word_rnn"] and settings["rnn_width"] is None and tok2vec_width % 2:
        raise ValueError(
            f"{ARCHITECTURE}: the contextual part has the odd width {tok2vec_width}, which "
            "word_rnn cannot divide between its two directions: set an even rnn_width."
        )
    shim.build(tok2vec_width=tok2vec_width, vectors_width=static, embed_width=embed_width)
    model.set_dim("nO", shim.module.width, force=True)


def _static_width(docs: List[Doc]) -> int:
    if not docs:
        raise ValueError(
            f"{ARCHITECTURE}: cannot determine the width of the static vectors without examples: "
            "call nlp.initialize with a get_examples callback that returns at least one non-empty "
            "doc."
        )
    width = vectors_width(docs[0].vocab)
    if not width:
        raise ValueError(
            f"{ARCHITECTURE}: static_vectors is on, but the vocab has no vectors. Set "
            "initialize.vectors to a pipeline with vectors or to what 'spacy init vectors' made, "
            "or set static_vectors to false."
        )
    return width


# Forward pass


def forward(model: Tok2VecModel, X: List[Doc], is_train: bool) -> Tuple[List[Floats2d], Backprop]:
    """Join the parts; see `build_hybrid_encoder`."""
    shim, tok2vec = parts_shim(model), _contextual(model)
    module = shim.module
    if not any(len(doc) for doc in X):
        return [model.ops.alloc2f(0, module.width) for _ in X], no_backprop
    context = embedded = None
    if tok2vec is not None:
        context = encode_words(tok2vec, X, shim.settings["tok2vec_width"], is_train)
    embed = _embed(model)
    if embed is not None:
        embedded = encode_words(embed, X, shim.settings["embed_width"], is_train)
    set_dropout(module, model.layers[0].attrs["dropout_rate"])
    with running(is_train, module):
        words = _words(
            model,
            X,
            None if context is None else context.words,
            None if embedded is None else embedded.words,
            is_train,
        )

    def backprop(d_vectors: List[Floats2d]) -> List[Any]:
        if words.requires_grad:
            gradient = model.ops.flatten([array for array in d_vectors if array.shape[0]])
            words.backward(to_torch(gradient, requires_grad=False))
        if embedded is not None:
            embedded.backprop(embedded.words.grad)
        return [] if context is None else context.backprop(context.words.grad)

    lengths = [len(doc) for doc in X]
    flat = torch2xp(words.detach())
    return model.ops.unflatten(flat, model.ops.asarray1i(lengths)), backprop  # type: ignore[return-value]


def _words(
    model: Tok2VecModel,
    X: List[Doc],
    context: Optional[Tensor],
    embedded: Optional[Tensor],
    is_train: bool,
) -> Tensor:
    """All words of all docs, one after the other, `(words, width)`."""
    module = parts_shim(model).module
    parameter = next(module.parameters(), None)
    device = get_torch_default_device() if parameter is None else parameter.device
    docs = [doc for doc in X if len(doc)]
    own = _own_parts(model, docs, device, is_train)
    if embedded is not None:  # with a dropout of its own
        own.append(embedded)
    if module.rnn is None:
        return module(context, own)
    lengths = np.array([len(doc) for doc in docs], dtype=np.int64)
    states, places = [], []
    for _, index, mask in padded_batches(lengths, model.attrs["batch_words"], device):
        read = None if context is None else F.embedding(index, context)
        states.append(module(read, [F.embedding(index, part) for part in own], mask)[mask])
        places.append(index[mask])
    return torch.cat(states)[torch.argsort(torch.cat(places))]


def _own_parts(
    model: Tok2VecModel, docs: List[Doc], device: torch.device, is_train: bool
) -> List[Tensor]:
    """Every part but the contextual one, `(words, width)` each."""
    shim, reads = parts_shim(model), model.attrs["annotation"]
    static = tags = characters = None
    if model.attrs["static_vectors"]:
        _check_vectors(docs[0].vocab, shim.settings["vectors_width"])
        static = static_rows(docs, model.ops)
    if reads:
        _check_tags(docs, reads, is_train)
        tags = on_device(tag_keys(docs, reads), device)
    if shim.module.characters is not None:
        characters = _characters(shim.module, docs, model.attrs["batch_words"], device)
    return shim.module.own_parts(static, tags, characters)


def _characters(module: HybridWords, docs: List[Doc], budget: int, device: torch.device) -> Tensor:
    """`(words, char_width)`; a form that occurs twice is encoded once."""
    assert module.characters is not None
    forms = word_forms(docs, device)
    vectors, rows = [], []
    for batch, index, mask in padded_batches(forms.lengths, budget, device):
        vectors.append(module.characters(forms.characters[index], mask))
        rows.append(batch)
    back = on_device(np.argsort(np.concatenate(rows)), device)
    return torch.cat(vectors)[back][forms.form_of_word]


def _check_vectors(vocab: Vocab, width: int) -> None:
    if vectors_width(vocab) != width:
        raise ValueError(
            f"{ARCHITECTURE}: the weights belong to static vectors of width {width}, but the vocab "
            f"has width {vectors_width(vocab)}. Load the pipeline together with the vectors that "
            "it was trained with."
        )


def _check_tags(docs: List[Doc], attr: str, is_train: bool) -> None:
    if not has_annotation(docs, attr):
        if is_train:
            raise ValueError(missing_annotation(attr))
        warn(missing_annotation(attr))
