"""Forward and backward pass of plain multilayer perceptrons without autograd.

On one CPU core, a minibatch of 256 steps through two networks with two layers of 64 units takes two thirds of the time
that autograd takes; large batches through wide layers take the same time either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from townlet.agents.networks import ActorCritic, Branch
from townlet.nets.activations import ACTIVATION_GRAD, InPlaceActivation, activate_
from townlet.nets.body import Body
from townlet.nets.kernels import linear_relu
from townlet.nets.layers import MLP


class LinearLayer(NamedTuple):
    """Parameters of an `nn.Linear`, held directly: attribute lookup on a module is slow."""

    weight: Tensor
    bias: Tensor


class MLPLayers(NamedTuple):
    """Linear layers with one activation, and linear heads on the last of them."""

    activation: InPlaceActivation
    layers: Sequence[LinearLayer]
    heads: Sequence[LinearLayer]


def mlp_layers(network: ActorCritic) -> list[MLPLayers] | None:
    """The MLPs that make up a network; None if any part of it is not a plain MLP."""
    if isinstance(network.critic, Branch):
        parts = [_mlp_layers_of(branch.body, branch.head) for branch in (network.actor, network.critic)]
    else:
        parts = [_mlp_layers_of(network.actor.body, network.actor.head, network.critic)]
    mlps = [mlp for mlp in parts if mlp is not None]
    if len(mlps) < len(parts):
        return None
    covered = {id(parameter) for mlp in mlps for layer in (*mlp.layers, *mlp.heads) for parameter in layer}
    complete = covered == {id(parameter) for parameter in network.parameters()}  # others would get no gradient
    return mlps if complete else None


def _mlp_layers_of(body: Body, *heads: nn.Module) -> MLPLayers | None:
    mlp = body.encoder
    if body.recurrent is not None or not isinstance(mlp, MLP) or mlp.inplace_activation is None:
        return None
    layers = [LinearLayer(layer.weight, layer.bias) for layer in mlp if isinstance(layer, nn.Linear)]
    linear_heads = [LinearLayer(head.weight, head.bias) for head in heads if isinstance(head, nn.Linear)]
    if len(linear_heads) < len(heads):
        return None
    return MLPLayers(mlp.inplace_activation, layers, linear_heads)


class AnalyticMLP:
    """One or more MLPs that read the same observation. `backward` adds to the `.grad` of their parameters.

    Matrix products are computed in `dtype`; parameters, gradients and outputs stay float32 (or float64).
    """

    def __init__(self, mlps: Sequence[MLPLayers], dtype: torch.dtype | None = None) -> None:
        self._mlps = mlps
        self._dtype = dtype or mlps[0].heads[0].weight.dtype
        self._inputs: list[list[Tensor]] = []  # for each MLP: the input of every layer, then the input of its heads

    @torch.no_grad()
    def forward(self, obs: Tensor) -> list[Tensor]:
        """Outputs [B, K] of every head for obs [B, D]."""
        outputs: list[Tensor] = []
        self._inputs = []
        self._ones = obs.new_ones(len(obs), dtype=self._dtype)  # [B], for sums over the batch
        for mlp in self._mlps:
            inputs = [obs.to(self._dtype)]
            for layer in mlp.layers:
                x, weight, bias = inputs[-1], layer.weight.to(self._dtype), layer.bias.to(self._dtype)
                if mlp.activation == "relu" and x.device.type == "cuda":
                    inputs.append(linear_relu(x, weight, bias))
                else:
                    inputs.append(activate_(linear(x, weight, bias), mlp.activation))
            self._inputs.append(inputs)
            outputs += _head_outputs(mlp, inputs[-1])
        return outputs

    @torch.no_grad()
    def backward(self, grads: Sequence[Tensor]) -> None:
        """Accumulate gradients of a loss, given those [B, K] (or [B]) with respect to the outputs of `forward`."""
        remaining = iter(grads)
        for mlp, inputs in zip(self._mlps, self._inputs, strict=True):
            grad = self._backward_heads(mlp, inputs[-1], [next(remaining) for _ in mlp.heads])
            for index in reversed(range(len(mlp.layers))):
                grad = ACTIVATION_GRAD[mlp.activation](grad, inputs[index + 1])
                self._add_gradient(mlp.layers[index], grad.t(), inputs[index])
                if index:
                    grad = grad.mm(mlp.layers[index].weight.to(self._dtype))

    def _backward_heads(self, mlp: MLPLayers, features: Tensor, grads: Sequence[Tensor]) -> Tensor:
        """Accumulate the gradients of the heads; returns the gradient [B, F] with respect to the features."""
        transposed = [(grad.unsqueeze(0) if grad.dim() == 1 else grad.t()).to(self._dtype) for grad in grads]
        for head, grad in zip(mlp.heads, transposed, strict=True):
            self._add_gradient(head, grad, features)
        joined = transposed[0] if len(transposed) == 1 else torch.cat(transposed)
        weight, _ = _concatenated(mlp.heads)
        return joined.t().mm(weight.to(self._dtype))

    def _add_gradient(self, layer: LinearLayer, grad: Tensor, inputs: Tensor) -> None:
        """∂L/∂W += g x and ∂L/∂b += Σ_B g, for the transposed output gradient g [O, B] and the inputs x [B, I]."""
        weight_grad, bias_grad = layer.weight.grad, layer.bias.grad
        assert weight_grad is not None
        assert bias_grad is not None
        if self._dtype == weight_grad.dtype:
            weight_grad.addmm_(grad, inputs)
            bias_grad.addmv_(grad, self._ones)  # half the time of a sum and an addition
        else:
            weight_grad += grad.mm(inputs)
            bias_grad += grad.sum(1, dtype=bias_grad.dtype)


def _head_outputs(mlp: MLPLayers, features: Tensor) -> list[Tensor]:
    """Outputs [B, K] of each head from one matrix product, with the action dimension first in memory.

    Separate products with few columns, and sums over a last dimension of few actions, would be slow.
    """
    weight, bias = (part.to(features.dtype) for part in _concatenated(mlp.heads))
    outputs = torch.addmm(bias.unsqueeze(1), weight, features.t()).to(mlp.heads[0].weight.dtype)
    if len(mlp.heads) == 1:
        return [outputs.t()]
    return [part.t() for part in torch.split(outputs, [len(head.bias) for head in mlp.heads])]


def _concatenated(heads: Sequence[LinearLayer]) -> tuple[Tensor, Tensor]:
    """Weights and biases of all heads, concatenated."""
    if len(heads) == 1:
        return heads[0]
    return torch.cat([head.weight for head in heads]), torch.cat([head.bias for head in heads])
