"""There and back: the outputs of a network, and the gradient of what is made of them, for an optimizer to follow.

Nearly all networks of small observations are plain layers, whose slopes are a few products: written out they take two
thirds of the time that torch needs to record the way and to find it back (256 rows through two bodies of 64-64). Large
batches through wide layers take the same time either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from townlet.nets.bends import SLOPE, Bend, bend_over
from townlet.nets.body import Body
from townlet.nets.layers import Stack
from townlet.nets.optimizers import Optimizer


class Chain(NamedTuple):
    """Plain layers, each bent, and linear heads on the last of them; a `mix` [K, S] makes K outputs of the heads' S."""

    bend: Bend
    layers: Sequence[nn.Linear]
    heads: Sequence[nn.Linear]
    mix: Tensor | None = None

    @property
    def all(self) -> Sequence[nn.Linear]:
        """Layers and heads."""
        return (*self.layers, *self.heads)


def chain(body: Body, *heads: nn.Module, mix: Tensor | None = None) -> Chain | None:
    """The body with these heads, or None where there is more to it than plain layers."""
    stack = body.encoder
    if body.core is not None or not isinstance(stack, Stack) or stack.bend is None:
        return None
    ends = [head for head in heads if isinstance(head, nn.Linear)]
    layers = [layer for layer in stack if isinstance(layer, nn.Linear)]
    return Chain(stack.bend, layers, ends, mix) if len(ends) == len(heads) else None


class Way(Protocol):
    """Through a network and back. The way there must be gone before each way back."""

    def there(self, obs: Tensor, hidden: Tensor, fresh: Tensor | None = None) -> Sequence[Tensor]:
        """Outputs of the network, without what it remembers; nothing follows how they are used."""

    def back(self, slopes: Sequence[Tensor]) -> None:
        """Add the gradient of a loss with these slopes by the outputs to what the optimizer steps down."""


class Recorded:
    """The way through any network, recorded and found back by torch."""

    def __init__(self, network: nn.Module, optimizer: Optimizer) -> None:
        self._network, self._optimizer = network, optimizer
        self._outputs: Sequence[Tensor] = ()

    def there(self, obs: Tensor, hidden: Tensor, fresh: Tensor | None = None) -> Sequence[Tensor]:
        """Outputs of the network, without what it remembers."""
        with torch.enable_grad():
            self._outputs = self._network(obs, hidden, fresh)[:-1]
        return [output.detach() for output in self._outputs]

    def back(self, slopes: Sequence[Tensor]) -> None:
        """Add the gradient."""
        self._optimizer.add(self._outputs, slopes)


class Plain:
    """The way through chains that read the same observation."""

    def __init__(self, chains: Sequence[Chain], optimizer: Optimizer, dtype: torch.dtype = torch.float32) -> None:
        self._chains, self._optimizer, self._dtype = chains, optimizer, dtype
        self._gradients = {id(layer): optimizer.gradients_of(layer) for each in chains for layer in each.all}
        self._read: list[list[Tensor]] = []  # by the layers of each chain, and by its heads

    @torch.no_grad()
    def there(self, obs: Tensor, hidden: Tensor, fresh: Tensor | None = None) -> Sequence[Tensor]:
        """Outputs [B, K] of all heads."""
        outputs: list[Tensor] = []
        self._read = []
        for chain in self._chains:
            read = [obs.to(self._dtype)]
            for layer in chain.layers:
                weight, bias = layer.weight.to(self._dtype), layer.bias.to(self._dtype)
                read.append(_bent(read[-1], weight, bias, chain.bend))
            self._read.append(read)
            outputs += _outputs(chain, read[-1])
        return outputs

    @torch.no_grad()
    def back(self, slopes: Sequence[Tensor]) -> None:
        """Add the gradient. The slopes of a single number may be [B]."""
        more, rest = self._optimizer.begin(), iter(slopes)
        for chain, read in zip(self._chains, self._read, strict=True):
            slope = self._behind(chain, read[-1], [next(rest) for _ in chain.heads], more)
            for place in reversed(range(len(chain.layers))):
                slope = SLOPE[chain.bend](slope, read[place + 1])
                self._follow(chain.layers[place], slope.t(), read[place], more)
                if place:
                    slope = slope.mm(chain.layers[place].weight.to(self._dtype))

    def _behind(self, chain: Chain, features: Tensor, slopes: Sequence[Tensor], more: bool) -> Tensor:
        """Back through the heads: slopes [B, F] by the features."""
        across = [(slope.unsqueeze(0) if slope.dim() == 1 else slope.t()).to(self._dtype) for slope in slopes]
        if chain.mix is not None:
            across = [chain.mix.t().mm(slope) for slope in across]
        for head, slope in zip(chain.heads, across, strict=True):
            self._follow(head, slope, features, more)
        weight = _joined(chain.heads)[0].to(self._dtype)
        return (across[0] if len(across) == 1 else torch.cat(across)).t().mm(weight)

    def _follow(self, layer: nn.Linear, slope: Tensor, read: Tensor, more: bool) -> None:
        """The gradient of one layer that read [B, I], by the slope [O, B] of what it made."""
        weight, bias = self._gradients[id(layer)]
        if self._dtype != weight.dtype:  # sums are added up in float32 inside of a product, too
            whole, each = slope.mm(read).float(), slope.sum(1, dtype=weight.dtype)
            weight.copy_(weight + whole if more else whole)
            bias.copy_(bias + each if more else each)
            return
        weight.addmm_(slope, read, beta=int(more))
        if more:
            bias += slope.sum(1)
        else:
            torch.sum(slope, 1, out=bias)


def _bent(x: Tensor, weight: Tensor, bias: Tensor, bend: Bend) -> Tensor:
    """One layer. On a GPU a product can cut off what is below 0 as it writes it down."""
    if bend == "relu" and x.device.type == "cuda":
        return torch._addmm_activation(bias, x, weight.t())
    return bend_over(linear(x, weight, bias), bend)


def _outputs(chain: Chain, features: Tensor) -> Sequence[Tensor]:
    """Of each head [B, K], with actions first in memory: thin products and sums over few actions are slow."""
    weight, bias = (part.to(features.dtype) for part in _joined(chain.heads))
    made = torch.addmm(bias.unsqueeze(1), weight, features.t()).float()
    if chain.mix is not None:
        return [chain.mix.mm(made).t()]
    if len(chain.heads) == 1:
        return [made.t()]
    return [part.t() for part in torch.split(made, [head.out_features for head in chain.heads])]


def _joined(heads: Sequence[nn.Linear]) -> tuple[Tensor, Tensor]:
    """All heads as one layer."""
    if len(heads) == 1:
        return heads[0].weight, heads[0].bias
    return torch.cat([head.weight for head in heads]), torch.cat([head.bias for head in heads])


def way(
    network: nn.Module, chains: Sequence[Chain | None], optimizer: Optimizer, dtype: torch.dtype = torch.float32
) -> Way:
    """The quickest way through the network; `chains` is all that it consists of, as far as they are plain.

    Products are made of numbers of this type; weights, sums and what is made of the outputs keep theirs.
    """
    plain = [each for each in chains if each is not None]
    if not plain or len(plain) < len(chains):
        return Recorded(network, optimizer)
    told = {id(weight) for each in plain for layer in each.all for weight in layer.parameters()}
    if told != {id(weight) for weight in network.parameters()}:
        raise ValueError("these chains are not the whole network")
    return Plain(plain, optimizer, dtype)
