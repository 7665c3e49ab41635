"""Units that do nothing any more: a relu that is 0 at all that is seen learns nothing either."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def dead_share(network: nn.Module, *inputs: Tensor) -> float | None:
    """The share of relu units that are 0 at all inputs [B, …]; of pictures a channel is a unit. None without any."""
    alive: list[Tensor] = []

    def look(layer: nn.Module, given: Any, made: Tensor) -> None:
        alive.append((made > 0).transpose(0, 1).flatten(1).any(1))

    hooks = [layer.register_forward_hook(look) for layer in network.modules() if isinstance(layer, nn.ReLU)]
    try:
        if not hooks:
            return None
        network(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return 1 - float(torch.cat(alive).float().mean())
