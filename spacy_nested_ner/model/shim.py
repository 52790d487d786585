"""The torch head inside the Thinc model: built late, saved without pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

import srsly
from safetensors.torch import load as load_tensors

from spacy_nested_ner.encoders.shim import TorchShim
from spacy_nested_ner.layers.dropout import set_dropout
from spacy_nested_ner.systems.base import ModelSettings, System

if TYPE_CHECKING:
    from spacy_nested_ner.systems.head import Head


class HeadShim(TorchShim):
    """Holds a head, which is built when the width of the words and the labels are known.

    system: says which class the head is of. settings: for the head, as the config gives them.
    """

    what = "head of this component"

    def __init__(self, system: System, settings: ModelSettings) -> None:
        super().__init__(None)
        self.system = system
        self.given = self.settings = settings
        self.width: Optional[int] = None
        self.n_labels = 0

    def fit(self, longest: int) -> None:
        """Let the settings fit training data whose longest entity has so many words; before
        `build`."""
        self.settings = self.system.fitted(self.given, longest)

    def extend(self, longest: int) -> None:
        """Let a head that learns further fit entities of so many words, too."""
        fitted = self.system.fitted(self.given, longest, self.settings)
        if fitted != self.settings:
            self.settings = fitted
            self.module.fit(fitted)

    def build(self, width: int, n_labels: int) -> None:
        """Make a fresh head for word vectors of this width and so many labels."""
        self.width, self.n_labels = width, n_labels
        self.set_module(self._head())

    def _head(self) -> Head:
        head = self.system.head_class()(self.width, self.n_labels, self.settings)
        if self.settings.dropout is not None:
            set_dropout(head, self.settings.dropout, fixed=True)
        return head

    def add_labels(self, n_labels: int) -> None:
        """Grow a trained head to so many labels; the present ones stay the first."""
        self.module.add_labels(n_labels)
        self.n_labels = n_labels
        self.renew_id()

    def to_bytes(self) -> bytes:
        """Settings and sizes as JSON, weights as safetensors; None before `build`."""
        sizes = {"width": self.width, "n_labels": self.n_labels}
        saved = {"settings": self.settings.to_dict(), **sizes}
        return srsly.msgpack_dumps({"head": srsly.json_dumps(saved), "weights": self._weights()})

    def from_bytes(self, bytes_data: bytes) -> HeadShim:
        """Rebuild the head that `to_bytes` saved, on the device in use."""
        data = srsly.msgpack_loads(bytes_data)
        saved = srsly.json_loads(data["head"])
        self.settings = self.system.settings(**saved["settings"])
        self.width, self.n_labels, self._model = saved["width"], saved["n_labels"], None
        if data["weights"] is not None:
            head = self._head()
            head.load_state_dict(load_tensors(data["weights"]))
            self.set_module(head)
        return self
