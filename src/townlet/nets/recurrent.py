"""Recurrent layers: LSTM and GRU over sequences in which episodes may begin at any step."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from townlet.nets.layers import uninitialized

HiddenState = tuple[Tensor, ...]  # (h, c) of an LSTM, (h,) of a GRU, each [B, size]; h is also the output
Weights = list[nn.Parameter]  # torch's weight_ih, weight_hh, bias_ih and bias_hh


class RecurrentLayer(nn.Module):
    """One recurrent layer; its hidden state [B, hidden_size] is the parts of `HiddenState`, concatenated."""

    n_states = 1  # parts of the hidden state

    def __init__(self, rnn: nn.RNNBase) -> None:
        super().__init__()
        self.rnn = rnn
        self.features, self.hidden_size = rnn.hidden_size, rnn.hidden_size * self.n_states

    @abstractmethod
    def project(self, x: Tensor, weights: Weights) -> Tensor:
        """The contribution of inputs [..., E] to the gates [..., gates · size], for all steps at once."""

    @abstractmethod
    def step(self, projected: Tensor, state: HiddenState, weights: Weights) -> HiddenState:
        """The state after one step, from the projected inputs [B, gates · size] and the state before it."""

    @abstractmethod
    def fused(self, x: Tensor, state: HiddenState) -> tuple[Tensor, HiddenState]:
        """Outputs [T, B, size] and last state for x [T, B, E], in one call of torch without resets in between."""

    def forward(self, x: Tensor, hidden: Tensor, episode_start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step x [B, E] or a sequence [T, B, E] from hidden [B, H] → outputs [..., B, size], hidden after it.

        `episode_start` ([B] or [T, B] bool) marks rows that begin an episode, with a hidden state of zeros.
        """
        single_step = x.dim() == 2
        if episode_start is not None:
            hidden = hidden.masked_fill((episode_start if single_step else episode_start[0]).unsqueeze(-1), 0.0)
        state: HiddenState = hidden.chunk(self.n_states, -1)
        if single_step:
            weights = self.rnn.all_weights[0]
            state = self.step(self.project(x, weights), state, weights)
            return state[0], _concat(state)
        # Few sequences contain the start of an episode after the first step; torch's own loop is up to twice as fast.
        if episode_start is not None and bool(episode_start[1:].any()):
            outputs, state = self._loop(x, state, episode_start)
        else:
            outputs, state = self.fused(x, state)
        return outputs, _concat(state)

    def _loop(self, x: Tensor, state: HiddenState, episode_start: Tensor) -> tuple[Tensor, HiddenState]:
        """Step by step, with resets; the inputs of all steps are projected in one product.

        Steps are separated by `unbind`: the gradient of indexing would be a tensor of zeros as large as the sequence.
        """
        weights = self.rnn.all_weights[0]
        has_start = episode_start.any(1).tolist()
        resets = episode_start.unsqueeze(-1).unbind(0)
        outputs = []
        for t, projected in enumerate(self.project(x, weights).unbind(0)):
            if t and has_start[t]:  # the first step is reset in `forward`
                state = tuple(part.masked_fill(resets[t], 0.0) for part in state)
            state = self.step(projected, state, weights)
            outputs.append(state[0])
        return torch.stack(outputs), state


class Lstm(RecurrentLayer):
    """LSTM (Hochreiter & Schmidhuber 1997) with forget gates (Gers et al. 2000); `hidden` is h and c, concatenated."""

    n_states = 2

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__(uninitialized(nn.LSTM, inputs, size))

    def project(self, x: Tensor, weights: Weights) -> Tensor:
        return linear(x, weights[0], weights[2] + weights[3])

    def step(self, projected: Tensor, state: HiddenState, weights: Weights) -> HiddenState:
        h, c = state
        gates = torch.addmm(projected, h, weights[1].t())
        i, f, g, o = gates.chunk(4, -1)  # input, forget, cell and output gate
        c = torch.addcmul(f.sigmoid() * c, i.sigmoid(), g.tanh())
        return o.sigmoid() * c.tanh(), c

    def fused(self, x: Tensor, state: HiddenState) -> tuple[Tensor, HiddenState]:
        h, c = state
        outputs, (h, c) = self.rnn(x, (h.unsqueeze(0).contiguous(), c.unsqueeze(0).contiguous()))
        return outputs, (h.squeeze(0), c.squeeze(0))


class Gru(RecurrentLayer):
    """GRU (Cho et al. 2014) as in torch: the reset gate is applied to the projected hidden state."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__(uninitialized(nn.GRU, inputs, size))

    def project(self, x: Tensor, weights: Weights) -> Tensor:
        return linear(x, weights[0], weights[2])

    def step(self, projected: Tensor, state: HiddenState, weights: Weights) -> HiddenState:
        (h,) = state
        x_r, x_z, x_n = projected.chunk(3, -1)  # reset gate, update gate and new state
        h_r, h_z, h_n = linear(h, weights[1], weights[3]).chunk(3, -1)
        new = torch.addcmul(x_n, (x_r + h_r).sigmoid(), h_n).tanh()
        return (torch.lerp(new, h, (x_z + h_z).sigmoid()),)

    def fused(self, x: Tensor, state: HiddenState) -> tuple[Tensor, HiddenState]:
        (h,) = state
        outputs, h = self.rnn(x, h.unsqueeze(0))
        return outputs, (h.squeeze(0),)


RECURRENT_LAYERS: Final[dict[str, type[Lstm] | type[Gru]]] = {"lstm": Lstm, "gru": Gru}


def _concat(state: HiddenState) -> Tensor:
    return state[0] if len(state) == 1 else torch.cat(state, -1)
