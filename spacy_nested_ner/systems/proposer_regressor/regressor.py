"""Layers that refine the proposals with spatially modulated attention (section 3.3).

Section and equation numbers are those of Wen et al. 2023. Shapes: B batch, P proposals, C labels,
A attention heads, h hidden width. Class 0 is None.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Collection, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spacy_nested_ner.layers.attention import join_heads, split_parts
from spacy_nested_ner.layers.masks import of_padding
from spacy_nested_ner.systems.proposer_regressor.proposer import MLP, Proposals


class RegressorLayer(nn.Module):
    """Category embedding, spatially modulated attention, gated update, iterations (section 3.3).

    without: parts that are left out, see `PARTS` of the settings.
    """

    def __init__(
        self,
        width: int,
        n_labels: int,
        heads: int,
        without: Collection[str],
    ) -> None:
        super().__init__()
        self.heads = heads
        head_width = width // heads
        modulated = "spatial_modulation" not in without
        located = "location_iteration" not in without
        gated = "gated_update" not in without
        self.category: Optional[nn.Parameter] = None
        if "category_embedding" not in without:
            self.category = nn.Parameter(torch.randn(n_labels + 1, width))
        self.project = nn.Linear(width, 3 * width)
        # Only the modulation reads the shape of the spatial weight, only the iteration of locations
        # reads the votes of the heads.
        self.locator = Locator(head_width, modulated) if modulated or located else None
        self.vote = MLP(head_width, 2) if located else None
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.0)
        self.attention_norm = nn.LayerNorm(width)
        self.gate = nn.GRUCell(width, width) if gated else None
        self.gate_norm = nn.LayerNorm(width) if gated else None
        self.labels = MLP(width, n_labels + 1) if "logits_iteration" not in without else None

    def forward(self, proposals: Proposals) -> Proposals:
        """Refined proposals of the same shapes."""
        state = proposals.query
        if self.category is not None:
            state = state + proposals.labels.softmax(-1) @ self.category  # eq. 11
        attended, location = self.attend(state, proposals.location, proposals.mask)
        joined = self.output(join_heads(attended))  # eq. 17
        query = self.attention_norm(state + self.dropout(joined))
        if self.gate is not None and self.gate_norm is not None:
            gated = self.gate(query.flatten(0, 1), state.flatten(0, 1)).view_as(state)  # eq. 18-19
            query = self.gate_norm(state + self.dropout(gated))
        labels = proposals.labels
        if self.labels is not None:
            labels = labels + self.labels(query)  # eq. 20
        return replace(proposals, query=query, location=location, labels=labels)

    def attend(self, state: Tensor, location: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        """Spatially modulated attention (eq. 12-16): `(B, A, P, h / A)` and new locations."""
        query, key, value = split_parts(self.project(state), 3, self.heads)
        padded = of_padding(mask)
        allowed = None if padded is None else padded[:, None, None, :]
        centre = shape = None
        if self.locator is not None:
            centre, shape = self.locator(query, location.unsqueeze(1))
        if centre is not None and shape is not None:
            weight = spatial_weight(location, centre, shape)
            allowed = weight if allowed is None else weight.masked_fill(~allowed, -torch.inf)
        attended = F.scaled_dot_product_attention(query, key, value, allowed)
        if self.vote is not None and centre is not None:
            votes = self.vote(attended).softmax(dim=1)  # eq. 15, over the heads
            location = (votes * centre).sum(dim=1)  # eq. 16
        return attended, location

    def add_labels(self, n_labels: int) -> None:
        """Grow the category embedding and the logits."""
        if self.category is not None:
            new = n_labels + 1 - len(self.category)
            fresh = torch.randn(new, self.category.shape[1], device=self.category.device)
            self.category = nn.Parameter(torch.cat([self.category.detach(), fresh]))
        if self.labels is not None:
            self.labels.grow(n_labels + 1, 0.0)


class Locator(nn.Module):
    """Centre and shape of a Gaussian-like weight over locations (eq. 12-13).

    with_shape: False for the centre alone.
    """

    def __init__(self, width: int, with_shape: bool = True) -> None:
        super().__init__()
        self.mlp = MLP(width, 6 if with_shape else 2)

    def forward(self, query: Tensor, location: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        """query: `(..., width)`; location: `(..., 2)`, may broadcast.

        Returns the centre `(..., 2)` and the factor theta `(..., 2, 2)` of the precision matrix
        theta theta^T, which is positive semidefinite.
        """
        values = self.mlp(query)
        centre = location + values[..., :2]
        return centre, values[..., 2:].unflatten(-1, (2, 2)) if values.shape[-1] == 6 else None


def spatial_weight(location: Tensor, centre: Tensor, shape: Tensor) -> Tensor:
    """Logarithm of eq. 12 with the minus sign that a decaying weight needs.

    location: `(B, P, 2)` of the proposals that are attended to. centre: `(B, A, P, 2)` and shape:
    `(B, A, P, 2, 2)` of those that attend. Returns `(B, A, P, P)`, at most 0.
    """
    theta = shape.transpose(-1, -2)  # `(B, A, P, 2, 2)`, the factors before the coordinates
    at_centre = (theta * centre.unsqueeze(-2)).sum(-1)
    # theta^T (x - centre) for all x in one product: `(B, A * P * 2, P)`.
    offsets = torch.baddbmm(
        -at_centre.reshape(len(theta), -1, 1),
        theta.reshape(len(theta), -1, 2),
        location.transpose(1, 2),
    ).unflatten(1, (*theta.shape[1:3], 2))
    first, second = offsets.unbind(3)
    return -torch.addcmul(first * first, second, second)
