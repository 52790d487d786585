"""The shim of spacy-transformers, whose weights may be int8."""

from io import BytesIO
from typing import Any

import srsly
import torch
from safetensors.torch import load as load_tensors
from spacy_transformers.layers.hf_shim import HFShim
from torch import nn
from transformers import AutoModel

from spacy_nested_ner.encoders.pretrained import check_config
from spacy_nested_ner.encoders.shim import CANNOT_LEARN, weights_of
from spacy_nested_ner.layers.int8 import to_int8


class CompressibleShim(HFShim):
    """As spacy-transformers' own until `to_int8` is called. Then it saves its weights without
    pickle, and cannot learn."""

    int8 = False

    def to_int8(self) -> None:
        """Round the weights to int8. ValueError for a model that is not of the BERT or RoBERTa
        family."""
        config = self._model.config
        check_config("nested-ner compress", config._name_or_path, config)
        to_int8(self._model, attention=True)
        self.int8 = True

    def begin_update(self, inputs: Any) -> Any:
        """Raises ValueError for int8 weights."""
        if self.int8:
            raise ValueError(f"A pretrained encoder cannot learn: {CANNOT_LEARN}.")
        return super().begin_update(inputs)

    def to_bytes(self) -> bytes:
        """Configuration, tokenizer and weights."""
        data = super().to_bytes()
        if not self.int8:
            return data
        saved = srsly.msgpack_loads(data)
        return srsly.msgpack_dumps({**saved, "state": weights_of(self._model), "int8": True})

    def from_bytes(self, bytes_data: bytes) -> "CompressibleShim":
        """Rebuild what `to_bytes` saved."""
        saved = srsly.msgpack_loads(bytes_data)
        self.int8 = saved.pop("int8", False)
        self.model_cls = _Int8Model if self.int8 else AutoModel
        if self.int8:  # the base reads what torch wrote
            state = BytesIO()
            torch.save(load_tensors(saved["state"]), state)
            bytes_data = srsly.msgpack_dumps({**saved, "state": state.getvalue()})
        super().from_bytes(bytes_data)
        return self


class _Int8Model:
    """Stands for `AutoModel` where the weights to load are int8."""

    @staticmethod
    def from_config(config: Any) -> nn.Module:
        model = AutoModel.from_config(config)
        to_int8(model, attention=True)
        return model
