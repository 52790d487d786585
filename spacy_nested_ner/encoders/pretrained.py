"""A pretrained encoder with its tokenizer: read once, then carried by the model that uses it."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy as np
import srsly
import torch
from safetensors.torch import load as load_tensors
from spacy.tokens import Doc
from thinc.api import Model
from torch import Tensor, nn

from spacy_nested_ner.encoders.curated import is_curated_transformer
from spacy_nested_ner.encoders.frozen_states import FrozenStates
from spacy_nested_ner.encoders.piece_windows import DocPieces, Window, lengths_of
from spacy_nested_ner.encoders.shim import TorchShim
from spacy_nested_ner.layers.int8 import to_int8
from spacy_nested_ner.layers.packed_encoder import read_rows, with_piece_embedding
from spacy_nested_ner.settings import Settings, setting

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Model types whose positions start behind the padding index, as RoBERTa's do.
ROBERTA_TYPES = ("roberta", "xlm-roberta", "camembert")
SUPPORTED_TYPES = ("bert", *ROBERTA_TYPES)
# What of the configuration of such a model decides what it computes. Nothing else of a saved one is
# handed on: transformers would fetch and run code that "attn_implementation" or "auto_map" names.
COMPUTED_FROM = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
)
# What guesses masked pieces, in the names of weights.
HEADS = ("cls.", "lm_head.")


# Rates for a pretrained encoder are around 5e-5; those for one from scratch, 1e-3 and more, make it
# forget what it knows.
HIGHEST_RATE = 3e-4


def learns_too_fast(encoder: Model[Any, Any], rate: float) -> bool:
    """Whether a pretrained encoder in this model learns at a rate for one from scratch."""
    return rate > HIGHEST_RATE and any(
        not (node.attrs.get("frozen") or node.attrs.get("_frozen"))  # "_": a curated transformer's
        for node in _pretrained_parts(encoder)
    )


def is_pretrained(encoder: Model[Any, Any]) -> bool:
    """Whether a pretrained encoder is a part of this model; one that it listens to is not."""
    return any(True for _ in _pretrained_parts(encoder))


def _pretrained_parts(encoder: Model[Any, Any]) -> Iterator[Model[Any, Any]]:
    """The parts of a model that hold a pretrained encoder: of this package, of spacy-transformers
    or of spacy-curated-transformers, which need not be installed."""
    for node in encoder.walk():
        if is_curated_transformer(node):
            yield node
        for shim in node.shims:
            names = {kind.__name__ for kind in type(shim).__mro__}
            if isinstance(shim, PretrainedShim) or "HFShim" in names:
                yield node


def needs_transformers(encoder: Model[Any, Any]) -> bool:
    """Whether a pretrained encoder of this package is a part of this model."""
    return any(isinstance(shim, PretrainedShim) for node in encoder.walk() for shim in node.shims)


def has_int8(encoder: Model[Any, Any]) -> bool:
    """Whether a pretrained encoder in this model has int8 weights."""
    return any(getattr(shim, "int8", False) for node in encoder.walk() for shim in node.shims)


INT8_INITIALIZED = (
    "int8 is true, but int8 weights cannot be trained. Set int8 to false, train, and compress the "
    "result with 'python -m spacy nested-ner compress'."
)


@dataclass(frozen=True)
class Weights(Settings):
    """How a pretrained encoder keeps its weights.

    int8: the weights are int8: smaller, faster on CPUs, but not trainable. Set by
        `nested-ner compress`.
    """

    int8: bool = setting(False)


@dataclass(frozen=True)
class FineTuning(Weights):
    """How a pretrained encoder learns. These settings can be set in `attrs` of a trained model.

    mixed_precision: matrix products in bfloat16 in training: faster on hardware that supports it
        (GPUs, CPUs with avx512_bf16 or amx_bf16), up to ten times slower elsewhere. null: on where
        a recent torch finds such instructions, off elsewhere. Weights and predictions are always
        float32.
    frozen: the encoder does not learn and has no dropout.
    frozen_layers: number of lower layers that, with the embeddings below them, do not learn and
        have no dropout: less to compute in each step, and a text goes through them only once. Their
        output for a text stays in memory, up to 256 MiB, until the pipeline is loaded again.
    """

    mixed_precision: Optional[bool] = setting(None)
    frozen: bool = setting(False)
    frozen_layers: int = setting(0, least=0, source="benchmarks/results/frozen_layers")


class PretrainedShim(TorchShim):
    """Holds a pretrained encoder and its tokenizer: read from `name` once, then self-contained.

    architecture: registered name, for errors. name: directory or hub name. max_pieces: the
    encoder's limit if None. int8: whether the weights are. settings: of the subclass,
    JSON-serialisable and saved.
    """

    what = "encoder"

    def __init__(
        self,
        architecture: str,
        name: str,
        max_pieces: Optional[int],
        int8: bool = False,
        settings: Optional[Dict[str, Any]] = None,
    ) -> None:
        super().__init__(None)
        self.architecture = architecture
        self.name = name
        self.wanted_pieces = max_pieces
        self.int8 = int8
        self.settings: Dict[str, Any] = settings or {}
        # Of the pretrained model, JSON-serialisable.
        self.config: Dict[str, Any] = {}
        # Ids of the special pieces: "cls", "sep", "pad".
        self.special: Dict[str, int] = {}
        self.max_pieces = 0
        self._tokenizer: Optional[Tokenizer] = None
        self.frozen_states = FrozenStates()

    def __setstate__(self, state: Dict[str, Any]) -> None:
        """A copy, also in another process, reads "[SEP]" in a text as text, too: that is lost where
        a tokenizer is copied or pickled."""
        vars(self).update(state)
        if self._tokenizer is not None:
            self._tokenizer.encode_special_tokens = True

    def wrap(self, pretrained: Any) -> nn.Module:
        """What to keep of a Hugging Face encoder: all but the layer over `[CLS]`."""
        pretrained.pooler = None
        return with_piece_embedding(pretrained)

    def set_module(self, module: nn.Module) -> None:
        """As in the base; nothing is kept of what other weights have made of texts."""
        super().set_module(module)
        self.frozen_states = FrozenStates()

    @property
    def n_layers(self) -> int:
        """Layers of the pretrained encoder."""
        return self.config["num_hidden_layers"]

    def frozen_layers(self, attrs: Mapping[str, Any]) -> int:
        """How many layers of the encoder do not learn, all of them where it is frozen.

        attrs: `frozen` and `frozen_layers`. Raises ValueError for more layers than there are.
        """
        wanted: int = self.n_layers if attrs["frozen"] else attrs["frozen_layers"]
        if wanted > self.n_layers:
            raise ValueError(
                f"{self.architecture}: frozen_layers is {wanted}, but '{self.name}' has "
                f"{self.n_layers} layers. Set it to at most that."
            )
        return wanted

    @property
    def piece_embeddings(self) -> nn.Parameter:
        """Embeddings of the word pieces, `(pieces, h)`; whatever `wrap` makes keeps them here."""
        return self.module.embeddings.word_embeddings.weight

    def with_int8(self, module: nn.Module) -> nn.Module:
        """The wrapped encoder with int8 layers in place of its own."""
        to_int8(module, attention=True)
        return module

    def to_int8(self) -> None:
        """Round the weights to int8. They cannot be trained any further."""
        self._model = self.with_int8(self.module)
        self.int8 = True

    def read(self, ids: Tensor, mask: Tensor, types: Optional[Tensor] = None) -> Tensor:
        """States of the last layer, `(batch, pieces, h)`. ids, types: `(batch, pieces)` long; mask:
        bool, False for padding, which comes last in a row."""
        if not (ids.is_cuda or torch.is_grad_enabled()):
            return read_rows(self.module, ids, mask, types)
        output = self.module(ids, attention_mask=mask, token_type_ids=types)
        states: Tensor = output.last_hidden_state
        return states

    def load(self) -> None:
        """Read configuration, tokenizer and weights from the directory or the hub."""
        if self.int8:
            raise ValueError(f"{self.architecture}: {INT8_INITIALIZED}")
        transformers = _transformers(self.architecture)
        config, tokenizer = self._read_tokenizer(transformers)
        pretrained, _ = self._read_weights(transformers, transformers.AutoModel, config, "pooler.")
        self._tokenizer = _plain_tokenizer(tokenizer.backend_tokenizer.to_str())
        self.set_module(self.wrap(pretrained))

    def load_masked(self) -> Tuple[Any, Any]:
        """The model of the directory or the hub with the head that guesses masked pieces, and its
        tokenizer. Where no head was saved, its layer begins as if it were not there.

        Raises ValueError for an encoder that is not there or not supported, or without a mask.
        """
        transformers = _transformers(self.architecture)
        config, tokenizer = self._read_tokenizer(transformers)
        if tokenizer.mask_token_id is None:
            raise ValueError(
                f"{self.architecture}: the tokenizer of '{self.name}' has no mask token."
            )
        kind = transformers.AutoModelForMaskedLM
        model, new = self._read_weights(transformers, kind, config, *HEADS)
        for name in new:
            if name.endswith("dense.weight"):
                nn.init.eye_(model.get_parameter(name))
        return model, tokenizer

    def _read_weights(
        self, transformers: Any, kind: Any, config: Any, *dispensable: str
    ) -> Tuple[Any, List[str]]:
        """A model of that kind, and the names of the weights that its files lack. ValueError if
        they lack others than those whose names begin as `dispensable`."""
        with _explain(self.architecture, self.name), _quiet(transformers):
            model, about = kind.from_pretrained(self.name, config=config, output_loading_info=True)
        lacking: List[str] = about["missing_keys"]
        if missing := [name for name in lacking if not name.startswith(dispensable)]:
            raise ValueError(
                f"{self.architecture}: '{self.name}' lacks weights: {', '.join(missing[:3])}"
                f"{' and others' if missing[3:] else ''}. They would be random."
            )
        return model, lacking

    def _read_tokenizer(self, transformers: Any) -> Tuple[Any, Any]:
        """Configuration and tokenizer, and what of them is kept. ValueError if there are none or
        they are not supported."""
        config = read_config(self.architecture, self.name)
        with _explain(self.architecture, self.name):
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.name, use_fast=True)
        if not tokenizer.is_fast:
            raise ValueError(
                f"{self.architecture}: '{self.name}' has no fast tokenizer (tokenizer.json)."
            )
        self.config = srsly.json_loads(config.to_json_string(use_diff=False))
        self.special = _special_pieces(self.architecture, self.name, tokenizer)
        self.max_pieces = self._limit(tokenizer.model_max_length)
        return config, tokenizer

    def _limit(self, tokenizer_limit: int) -> int:
        """Longest input: what the positions allow and the settings or the tokenizer want."""
        positions = self.config["max_position_embeddings"] - first_position(self.config)
        if self.wanted_pieces is None:
            return min(positions, tokenizer_limit)
        if self.wanted_pieces > positions:
            raise ValueError(
                f"{self.architecture}: max_pieces is {self.wanted_pieces}, but '{self.name}' has "
                f"positions for {positions} pieces only."
            )
        return self.wanted_pieces

    def tokenise(self, docs: List[Doc]) -> List[DocPieces]:
        """Pieces of each doc, word by word: ids `(pieces,)` long and `(words + 1,)` long offsets,
        where the pieces of each word begin."""
        assert self._tokenizer is not None
        words = [_spaced_words(doc) for doc in docs]
        coded = self._tokenizer.encode_batch(words, is_pretokenized=True, add_special_tokens=False)
        pieces = []
        for doc, code in zip(docs, coded):
            word_of_piece = np.array(code.word_ids, dtype=np.int64)
            offsets = np.zeros(len(doc) + 1, dtype=np.int64)
            offsets[1:] = np.bincount(word_of_piece, minlength=len(doc)).cumsum()
            pieces.append((np.array(code.ids, dtype=np.int64), offsets))
        return pieces

    def pieces_of_segments(self, docs: List[Doc], segments: np.ndarray) -> Dict[int, DocPieces]:
        """Tokenise the docs that segments are taken from: pieces by the index of the doc."""
        wanted = sorted({int(i) for i in segments[:, 0]})
        return dict(zip(wanted, self.tokenise([docs[i] for i in wanted])))

    def pad_windows(self, windows: List[Window]) -> Tuple[Tensor, Tensor, Tensor]:
        """`(batch, pieces)` ids, mask of the real pieces and of those that vectors are wanted of;
        special pieces are added."""
        shape = len(windows), int(lengths_of(windows).max())
        ids = np.full(shape, self.special["pad"], dtype=np.int64)
        mask, wanted = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        for i, window in enumerate(windows):
            end = len(window.ids) + 1
            ids[i, 0], ids[i, end] = self.special["cls"], self.special["sep"]
            ids[i, 1:end] = window.ids
            mask[i, : end + 1] = True
            first = 1 + window.first
            wanted[i, first : first + window.counts.sum()] = True
        return torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(wanted)

    def to_bytes(self) -> bytes:
        """Settings, configuration and tokenizer as JSON, weights as safetensors."""
        assert self._model is None or self._tokenizer is not None
        own = {**self.settings, "max_pieces": self.max_pieces, "special": self.special}
        own["int8"] = self.int8
        return srsly.msgpack_dumps(
            {
                "settings": srsly.json_dumps(own),
                "config": srsly.json_dumps(self.config),
                "tokenizer": None if self._tokenizer is None else self._tokenizer.to_str(),
                "weights": self._weights(),
            }
        )

    def from_bytes(self, data: bytes) -> "PretrainedShim":
        """Rebuild what `to_bytes` saved, without the directory or the hub."""
        saved = srsly.msgpack_loads(data)
        own = srsly.json_loads(saved["settings"])
        self.max_pieces, self.special = own.pop("max_pieces"), own.pop("special")
        self.int8 = own.pop("int8", False)
        self.settings, self.config = own, srsly.json_loads(saved["config"])
        self._model = self._tokenizer = None
        if saved["weights"] is not None:
            self._tokenizer = _plain_tokenizer(saved["tokenizer"])
            module = self.wrap(_random_encoder(self.architecture, self.config))
            if self.int8:
                module = self.with_int8(module)
            module.load_state_dict(load_tensors(saved["weights"]))
            self.set_module(module)
        return self


def _spaced_words(doc: Doc) -> List[str]:
    """Texts of the tokens, with the space before them, which RoBERTa's pieces tell apart."""
    spaced = [False, *(bool(token.whitespace_) for token in doc)]
    return [" " + token.text if space else token.text for token, space in zip(doc, spaced)]


def _transformers(architecture: str) -> Any:
    try:
        import transformers
    except ImportError as err:
        raise ImportError(
            f"{architecture} needs Hugging Face transformers: "
            f"pip install 'spacy_nested_ner[transformers]'. ({err})"
        ) from err
    return transformers


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Without advice to train what is new: it is about to be trained, or is not used."""
    logging = transformers.utils.logging
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


@contextlib.contextmanager
def _explain(architecture: str, name: str) -> Iterator[None]:
    """Turn the many errors of a model that is not there or not whole into one that says so."""
    try:
        path = Path(name)
        if (path.is_absolute() or name.startswith(".")) and not path.is_dir():
            raise OSError(f"there is no directory '{name}'")
        if path.is_dir() and not (path / "config.json").is_file():  # such as a pipeline of spaCy
            raise OSError("the directory has no config.json")
        yield
    except (OSError, ValueError, KeyError) as err:
        raise ValueError(
            f"{architecture}: cannot read a pretrained encoder from '{name}'. Give a directory "
            "with config.json, tokenizer.json and model.safetensors, or a model name of the hub "
            "(which needs a network or a filled cache); in a config it is 'name' of the "
            "component's tok2vec. A trained pipeline contains its encoder: continue its training "
            f"with nlp.resume_training, not with nlp.initialize. The error was: {err}"
        ) from err


def read_config(architecture: str, name: str) -> Any:
    """Configuration of a pretrained encoder, by directory or hub name.

    Raises ValueError if there is none or it is not supported, ImportError without transformers.
    """
    transformers = _transformers(architecture)
    with _explain(architecture, name):
        config = transformers.AutoConfig.from_pretrained(name)
    check_config(architecture, name, config)
    return config


def check_config(architecture: str, name: str, config: Any) -> None:
    """Raise ValueError for a pretrained model that is not of the supported kinds."""
    if config.model_type not in SUPPORTED_TYPES:
        raise ValueError(_unsupported(architecture, f"'{name}'", config.model_type))
    kind = getattr(config, "position_embedding_type", "absolute")
    if kind != "absolute" or config.is_decoder:
        raise ValueError(
            f"{architecture}: '{name}' is a decoder or has positions of type '{kind}'. Supported "
            "are encoders with absolute positions."
        )


def _unsupported(architecture: str, what: str, kind: str) -> str:
    supported = ", ".join(SUPPORTED_TYPES)
    return f"{architecture}: {what} is a model of type '{kind}'. Supported are {supported}."


def first_position(config: Dict[str, Any]) -> int:
    """Position id of the first piece."""
    return config["pad_token_id"] + 1 if config["model_type"] in ROBERTA_TYPES else 0


def _special_pieces(architecture: str, name: str, tokenizer: Any) -> Dict[str, int]:
    special = {
        "cls": tokenizer.cls_token_id,
        "sep": tokenizer.sep_token_id,
        "pad": tokenizer.pad_token_id,
    }
    missing = [key for key, piece in special.items() if piece is None]
    if missing:
        raise ValueError(
            f"{architecture}: the tokenizer of '{name}' has no special token for "
            f"{', '.join(missing)}."
        )
    return special


def _plain_tokenizer(data: str) -> "Tokenizer":
    """A tokenizer that neither cuts nor pads, and reads "[SEP]" in a text as text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(data)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _random_encoder(architecture: str, config: Dict[str, Any]) -> Any:
    """An encoder without trained weights from its configuration, which may be a stranger's."""
    kind = config["model_type"]
    if kind not in SUPPORTED_TYPES:
        raise ValueError(_unsupported(architecture, "the saved encoder", kind))
    transformers = _transformers(architecture)
    settings = {name: config[name] for name in COMPUTED_FROM if name in config}
    built = transformers.AutoConfig.for_model(kind, **settings)
    return transformers.AutoModel.from_config(built)
