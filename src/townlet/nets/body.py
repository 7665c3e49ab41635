"""From observation to features: an encoder of named blocks, optionally followed by a recurrent layer and an MLP."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from townlet.interfaces.layout import ObservationLayout
from townlet.nets.convolutional import Encoder, make_cnn, make_spatial
from townlet.nets.keypoints import Keypoints
from townlet.nets.layers import MLP, Concat, Slice, block_encoders, feature_count
from townlet.nets.map_memory import MapEncoder, MapMemory
from townlet.nets.recurrent import RECURRENT_LAYERS, RecurrentLayer
from townlet.nets.spec import BaseSpatialSpec, CnnSpec, KeypointsSpec, MapMemorySpec, MlpSpec, NetworkSpec


class Body(nn.Module):
    """Encoder, then optionally a recurrent layer (`recurrent`) and an MLP after it (`head_mlp`).

    `features` is the width of the output, `hidden_size` that of the hidden state (0 for a feed-forward network).
    Weights are zero until `initialize` draws them or a state is loaded. Without `carry` the hidden state is always
    zero: a sequence is treated as independent steps.
    """

    def __init__(
        self,
        encoder: nn.Module,
        recurrent: RecurrentLayer | MapMemory | None = None,
        head_mlp: MLP | None = None,
        carry: bool = True,
    ) -> None:
        super().__init__()
        self.encoder, self.recurrent, self.head_mlp, self.carry = encoder, recurrent, head_mlp, carry
        self.features = head_mlp.features if head_mlp is not None else feature_count(encoder)
        self.hidden_size = recurrent.hidden_size if recurrent is not None else 0
        self.register_buffer("_empty", torch.empty(0), persistent=False)  # on the device of the weights

    def initial_hidden(self, rows: int) -> Tensor:
        """The hidden state before the first step: zeros [rows, H]."""
        return self.get_buffer("_empty").new_zeros(rows, self.hidden_size)

    def forward(self, obs: Tensor, hidden: Tensor, episode_start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step obs [B, D] or a sequence [T, B, D] → features [..., B, F] and hidden [B, H] after the last step.

        hidden [B, H] is the state before the first step. `episode_start` ([B] or [T, B] bool) marks rows
        that begin an episode at that step, with a hidden state of zeros.
        """
        encoded = _apply_flat(self.encoder, obs)
        if self.recurrent is None or self.head_mlp is None:
            return encoded, hidden
        if not self.carry:
            steps = encoded.flatten(0, -2)
            features = self.head_mlp(self.recurrent(steps, self.initial_hidden(len(steps)))[0])
            return torch.unflatten(features, 0, encoded.shape[:-1]), torch.zeros_like(hidden)
        outputs, hidden = self.recurrent(encoded, hidden, episode_start)
        return _apply_flat(self.head_mlp, outputs), hidden

    def advance_hidden(self, obs: Tensor, hidden: Tensor, episode_start: Tensor | None = None) -> Tensor:
        """The hidden state [B, H] that `forward` returns, without the layers that only the features need."""
        if self.recurrent is None:
            return hidden
        if not self.carry:
            return torch.zeros_like(hidden)
        after: Tensor = self.recurrent(_apply_flat(self.encoder, obs), hidden, episode_start)[1]
        return after


def _apply_flat(layers: nn.Module, x: Tensor) -> Tensor:
    """Apply layers to [B, E], or to a sequence [T, B, E] flattened to [T · B, E].

    Flattening avoids copies: in-place layers copy an input that is a view, as the output of a linear layer with more
    than two dimensions is. The copies would take a sixth of the time of a gradient step.
    """
    flat: Tensor = layers(x if x.dim() == 2 else x.flatten(0, 1))
    return flat if x.dim() == 2 else torch.unflatten(flat, 0, x.shape[:2])


def build_body(spec: NetworkSpec, layout: ObservationLayout, carry: bool = True) -> Body:
    """The network body of a recipe's `network`, for observations of this layout."""
    if isinstance(spec, MapMemorySpec):
        map_encoder = MapEncoder(spec, layout)
        map_memory = MapMemory(map_encoder)
        head_mlp = MLP(map_memory.features, spec.widths, spec.activation, spec.layer_norm)
        return Body(map_encoder, map_memory, head_mlp, carry)
    encoder, recurrent = _make_encoder(spec, layout), spec.recurrent
    if recurrent is None:
        return Body(encoder)
    head_mlp = MLP(recurrent.size, recurrent.post_widths, spec.activation, spec.layer_norm)
    layer = RECURRENT_LAYERS[recurrent.kind](feature_count(encoder), recurrent.size)
    return Body(encoder, layer, head_mlp, carry)


def _make_encoder(spec: MlpSpec | KeypointsSpec | BaseSpatialSpec | CnnSpec, layout: ObservationLayout) -> nn.Module:
    if isinstance(spec, CnnSpec):
        return make_cnn(spec, layout)
    if isinstance(spec, BaseSpatialSpec):
        return make_spatial(spec, layout)
    if isinstance(spec, KeypointsSpec):
        return Encoder(Keypoints(spec, layout), spec.widths, spec)
    encoders = block_encoders(layout, spec)
    if len(encoders) == 1 and isinstance(encoders[0], Slice):  # values only: the whole observation is the input
        return MLP(layout.size, spec.widths, spec.activation, spec.layer_norm)
    return Encoder(Concat(encoders), spec.widths, spec)
