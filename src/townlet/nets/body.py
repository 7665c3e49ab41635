"""From observation to features: an encoder built from named blocks, and a memory where one is asked for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from townlet.contract.layout import Layout
from townlet.nets.heads import Dueling, head, initialise
from townlet.nets.keypoints import Keypoints
from townlet.nets.layers import Parts, Stack, Take, readers, width
from townlet.nets.pictures import Summed, make_cnn
from townlet.nets.places import Glance, Notebook
from townlet.nets.recurrent import Core, make_core
from townlet.nets.spatial import make_spatial
from townlet.nets.spec import CnnSpec, KeypointsSpec, MlpSpec, NetworkSpec, PlacesSpec, Spatial

__all__ = ["Body", "Dueling", "build_body", "head", "initialise"]


class Body(nn.Module):
    """Features of observations: `features` of them, with `hidden` numbers remembered per row, 0 without memory.

    Weights are zero until `initialise` draws them or a state is loaded.
    """

    def __init__(self, encoder: nn.Module, core: Core | Notebook | None = None, after: Stack | None = None) -> None:
        super().__init__()
        self.encoder, self.core, self.after = encoder, core, after
        self.features = after.features if after is not None else width(encoder)
        self.hidden = core.hidden if core is not None else 0
        self.register_buffer("_nothing", torch.empty(0), persistent=False)  # knows the device

    def start(self, rows: int) -> Tensor:
        """What is remembered before the first step: zeros [rows, hidden]."""
        return self.get_buffer("_nothing").new_zeros(rows, self.hidden)

    def forward(self, obs: Tensor, hidden: Tensor, fresh: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step obs [B, D] or a sequence [T, B, D] → features [.., B, F] and hidden [B, H] after the last step.

        hidden [B, H] is what was remembered before the first step. Rows that are fresh ([B] or [T, B] bool)
        forget everything before that step.
        """
        seen = self._look(obs)
        if self.core is None or self.after is None:
            return seen, hidden
        remembered, hidden = self.core(seen, hidden, fresh)
        return _flat(self.after, remembered), hidden

    def remember(self, obs: Tensor, hidden: Tensor, fresh: Tensor | None = None) -> Tensor:
        """hidden [B, H] after the steps, as from a call, without what is only needed for features."""
        return hidden if self.core is None else self.core(self._look(obs), hidden, fresh)[1]

    def _look(self, obs: Tensor) -> Tensor:
        return _flat(self.encoder, obs)


def _flat(layers: nn.Module, x: Tensor) -> Tensor:
    """Layers over single steps [B, E], also for a sequence [T, B, E].

    Flat, because layers that write over their input copy it when it is a view, and so is every linear layer's
    result for more than two dimensions: a sixth of the time of an update.
    """
    flat: Tensor = layers(x if x.dim() == 2 else x.flatten(0, 1))
    return flat if x.dim() == 2 else torch.unflatten(flat, 0, x.shape[:2])


def build_body(spec: NetworkSpec, layout: Layout) -> Body:
    """The body that a recipe describes, for observations of this layout."""
    if isinstance(spec, PlacesSpec):
        glance = Glance(spec, layout)
        notebook = Notebook(glance)
        return Body(glance, notebook, Stack(notebook.features, spec.widths, spec.activation, spec.layer_norm))
    encoder, memory = _encoder(spec, layout), spec.recurrent
    if memory is None:
        return Body(encoder)
    after = Stack(memory.size, memory.after, spec.activation, spec.layer_norm)
    return Body(encoder, make_core(memory.kind, width(encoder), memory.size), after)


def _encoder(spec: MlpSpec | KeypointsSpec | Spatial | CnnSpec, layout: Layout) -> nn.Module:
    if isinstance(spec, CnnSpec):
        return make_cnn(spec, layout)
    if isinstance(spec, Spatial):
        return make_spatial(spec, layout)
    if isinstance(spec, KeypointsSpec):
        keypoints = Keypoints(spec, layout)
        return Summed(keypoints, Stack(keypoints.features, spec.widths, spec.activation, spec.layer_norm))
    return _mlp(spec, layout)


def _mlp(spec: MlpSpec, layout: Layout) -> nn.Module:
    parts = readers(layout, spec)
    if len(parts) == 1 and isinstance(parts[0], Take):  # numbers alone: the observation is used whole
        return Stack(layout.size, spec.widths, spec.activation, spec.layer_norm)
    joined = Parts(parts)
    return Summed(joined, Stack(joined.features, spec.widths, spec.activation, spec.layer_norm))
