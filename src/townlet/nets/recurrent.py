"""Memory: LSTM and GRU over whole sequences in which rows may begin anew at any step."""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from townlet.nets.layers import undrawn

Memory = tuple[Tensor, ...]  # what is carried from step to step, each [B, size]; the first is also the output
Weights = list[nn.Parameter]  # of inputs, of the memory, and the two biases, as torch keeps them


class Core(nn.Module):
    """One recurrent layer. `hidden` numbers per row are carried from step to step, side by side."""

    carried = 1  # tensors that the memory consists of

    def __init__(self, cells: nn.RNNBase) -> None:
        super().__init__()
        self.cells = cells
        self.features, self.hidden = cells.hidden_size, cells.hidden_size * self.carried

    @abstractmethod
    def project(self, x: Tensor, weights: Weights) -> Tensor:
        """What inputs [..., E] add to the gates [..., gates · size], for all steps at once."""

    @abstractmethod
    def step(self, projected: Tensor, memory: Memory, weights: Weights) -> Memory:
        """One step: projected [B, gates · size]."""

    @abstractmethod
    def fused(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """All steps of x [T, B, E] in one call of torch, for rows that never begin anew."""

    def forward(self, x: Tensor, hidden: Tensor, fresh: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step x [B, E] or a sequence [T, B, E] from hidden [B, H] → outputs [.., B, size], hidden after it.

        Rows that are fresh ([B] or [T, B] bool) forget everything before that step.
        """
        one = x.dim() == 2
        if fresh is not None:
            hidden = hidden.masked_fill((fresh if one else fresh[0]).unsqueeze(-1), 0.0)
        memory: Memory = hidden.chunk(self.carried, -1)
        if one:
            weights = self.cells.all_weights[0]
            memory = self.step(self.project(x, weights), memory, weights)
            return memory[0], _side_by_side(memory)
        # Most sequences hold no later beginning; torch's own loop is up to twice as fast there.
        if fresh is not None and bool(fresh[1:].any()):
            outputs, memory = self._loop(x, memory, fresh)
        else:
            outputs, memory = self.fused(x, memory)
        return outputs, _side_by_side(memory)

    def _loop(self, x: Tensor, memory: Memory, fresh: Tensor) -> tuple[Tensor, Memory]:
        """Step by step; the inputs of all steps are projected in one product.

        Steps are taken apart with `unbind`: the gradient of an index into a sequence is a sequence of zeros.
        """
        weights = self.cells.all_weights[0]
        begins = fresh.any(1).tolist()
        forgets = fresh.unsqueeze(-1).unbind(0)
        outputs = []
        for t, projected in enumerate(self.project(x, weights).unbind(0)):
            if t and begins[t]:  # the first step is done
                memory = tuple(part.masked_fill(forgets[t], 0.0) for part in memory)
            memory = self.step(projected, memory, weights)
            outputs.append(memory[0])
        return torch.stack(outputs), memory


class Lstm(Core):
    """Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000); hidden is h and c side by side."""

    carried = 2

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__(undrawn(nn.LSTM, inputs, size))

    def project(self, x: Tensor, weights: Weights) -> Tensor:
        return linear(x, weights[0], weights[2] + weights[3])

    def step(self, projected: Tensor, memory: Memory, weights: Weights) -> Memory:
        h, c = memory
        gates = torch.addmm(projected, h, weights[1].t())
        write, keep, value, show = gates.chunk(4, -1)
        c = torch.addcmul(keep.sigmoid() * c, write.sigmoid(), value.tanh())
        return show.sigmoid() * c.tanh(), c

    def fused(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        h, c = memory
        outputs, (h, c) = self.cells(x, (h.unsqueeze(0).contiguous(), c.unsqueeze(0).contiguous()))
        return outputs, (h.squeeze(0), c.squeeze(0))


class Gru(Core):
    """Cho et al. 2014, in the form of torch: the reset gate works on the projected memory."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__(undrawn(nn.GRU, inputs, size))

    def project(self, x: Tensor, weights: Weights) -> Tensor:
        return linear(x, weights[0], weights[2])

    def step(self, projected: Tensor, memory: Memory, weights: Weights) -> Memory:
        (h,) = memory
        reset, keep, value = projected.chunk(3, -1)
        more_reset, more_keep, recalled = linear(h, weights[1], weights[3]).chunk(3, -1)
        new = torch.addcmul(value, (reset + more_reset).sigmoid(), recalled).tanh()
        return (torch.lerp(new, h, (keep + more_keep).sigmoid()),)

    def fused(self, x: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        (h,) = memory
        outputs, h = self.cells(x, h.unsqueeze(0))
        return outputs, (h.squeeze(0),)


CORES: Final[dict[str, type[Lstm] | type[Gru]]] = {"lstm": Lstm, "gru": Gru}


def make_core(kind: Literal["lstm", "gru"], inputs: int, size: int) -> Core:
    """The recurrent layer of that name."""
    return CORES[kind](inputs, size)


def _side_by_side(memory: Memory) -> Tensor:
    """The memory as one tensor [B, H]."""
    return memory[0] if len(memory) == 1 else torch.cat(memory, -1)
