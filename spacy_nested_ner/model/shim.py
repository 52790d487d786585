"""The torch head inside the Thinc model: built late, saved without pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

import srsly
from safetensors.torch import load as load_tensors

from spacy_nested_ner.encoders.shim import TorchShim
from spacy_nested_ner.systems.base import ModelSettings, System

if TYPE_CHECKING:
    from spacy_nested_ner.systems.head import Head


class HeadShim(TorchShim):
    """Holds a head, which is built when the width of the words and the labels are known.

    system: says which class the head is of. settings: for the head.
    """

    what = "head of this component"

    def __init__(self, system: System, settings: ModelSettings) -> None:
        super().__init__(None)
        self.system = system
        self.settings = settings
        self.width: Optional[int] = None
        self.labels: List[str] = []

    def build(self, width: int, labels: List[str]) -> None:
        """Make a fresh head for word vectors of this width and these labels."""
        self.width, self.labels = width, list(labels)
        self.set_module(self._head(width, len(labels)))

    def _head(self, width: int, n_labels: int) -> Head:
        return self.system.head_class()(width, n_labels, self.settings)

    def add_labels(self, labels: List[str]) -> None:
        """Grow a trained head to these labels, which begin with the present ones."""
        self.module.add_labels(len(labels))
        self.labels = list(labels)
        self.renew_id()

    def to_bytes(self) -> bytes:
        """Settings, width and labels as JSON, weights as safetensors; None before `build`."""
        saved = {"settings": self.settings.to_dict(), "width": self.width, "labels": self.labels}
        return srsly.msgpack_dumps({"head": srsly.json_dumps(saved), "weights": self._weights()})

    def from_bytes(self, bytes_data: bytes) -> HeadShim:
        """Rebuild the head that `to_bytes` saved, on the device in use."""
        data = srsly.msgpack_loads(bytes_data)
        saved = srsly.json_loads(data["head"])
        self.settings, self.width = self.system.settings(**saved["settings"]), saved["width"]
        self.labels, self._model = saved["labels"], None
        if data["weights"] is not None:
            head = self._head(saved["width"], len(self.labels))
            head.load_state_dict(load_tensors(data["weights"]))
            self.set_module(head)
        return self
