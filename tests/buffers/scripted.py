"""Scripted episodes to fill buffers with, and what plain Python expects of them.

Every observation holds a unique number, which identifies its step and row in samples. Rewards are small integers and
discounts powers of ½, so sums are exact in any order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor

from townlet.buffers.storage import VectorTransition
from townlet.interfaces.layout import ObservationLayout

ACTIONS = 3
LAYOUT = ObservationLayout.of(("number", (2,), -1.0, 1.0))
CONTINUES, TERMINATES, TRUNCATES = 0, 1, 2


@dataclass(frozen=True)
class Script:
    """ends[t][r]: whether step t of row r continues, terminates or truncates its episode."""

    ends: list[list[int]]

    @property
    def rows(self) -> int:
        return len(self.ends[0])

    def number(self, t: int, row: int) -> float:
        """The number of the observation before step t."""
        return float(t * self.rows + row)

    def next_number(self, t: int, row: int) -> float:
        """The number of the observation after step t; final observations have negative numbers."""
        return self.number(t + 1, row) if self.ends[t][row] == CONTINUES else -1.0 - self.number(t, row)

    def reward(self, t: int, row: int) -> float:
        return float((7 * t + 3 * row) % 11 - 5)

    def intrinsic(self, t: int, row: int) -> float:
        return float((5 * t + row) % 7 * 4)

    def action(self, t: int, row: int) -> int:
        return (t + row) % ACTIONS

    def locate(self, number: float) -> tuple[int, int]:
        """Step and row of an observation's number."""
        return divmod(int(number), self.rows)

    def steps(self, start: int = 0, stop: int | None = None) -> Iterator[VectorTransition]:
        """The transitions, step by step; tensors are reused, as environments do."""
        n = self.rows
        obs, next_obs = torch.zeros(n, 2), torch.zeros(n, 2)
        for t in range(start, len(self.ends) if stop is None else stop):
            for row in range(n):
                obs[row] = self.number(t, row)
                next_obs[row] = self.next_number(t, row)
            ends = torch.tensor(self.ends[t])
            yield VectorTransition(
                obs=obs,
                mask=mask_of(obs[:, 0]),
                actions=torch.tensor([self.action(t, row) for row in range(n)]),
                reward=torch.tensor([self.reward(t, row) for row in range(n)]),
                intrinsic=torch.tensor([self.intrinsic(t, row) for row in range(n)]),
                next_obs=next_obs,
                next_mask=mask_of(next_obs[:, 0]),
                terminated=ends == TERMINATES,
                truncated=ends == TRUNCATES,
                hidden=torch.zeros(n, 0),
            )


def mask_of(number: Tensor) -> Tensor:
    """The action mask [..., K] of an observation's number."""
    return (number.long().abs().unsqueeze(-1) + torch.arange(ACTIONS)) % 4 > 0


@st.composite
def scripts(draw: st.DrawFn, max_steps: int = 30) -> Script:
    """Episodes of one to three rows, with terminations and truncations anywhere."""
    rows, steps = draw(st.integers(1, 3)), draw(st.integers(1, max_steps))
    end = st.sampled_from((CONTINUES, CONTINUES, CONTINUES, CONTINUES, TERMINATES, TRUNCATES))
    return Script(draw(st.lists(st.lists(end, min_size=rows, max_size=rows), min_size=steps, max_size=steps)))


def endless(steps: int, rows: int) -> Script:
    """Episodes that never end."""
    return Script([[CONTINUES] * rows for _ in range(steps)])


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def saved_and_loaded(state: dict[str, Any]) -> dict[str, Any]:
    """A state saved and loaded as in a checkpoint: tensors as bytes, the rest as JSON."""
    tensors: dict[str, Tensor] = {}

    def apart(part: Any, path: str) -> Any:
        if isinstance(part, dict):
            return {name: apart(value, f"{path}/{name}") for name, value in part.items()}
        if isinstance(part, Tensor):
            tensors[path] = part
            return {"tensor": path}
        return part

    def together(part: Any) -> Any:
        if isinstance(part, dict):
            return loaded[part["tensor"]] if set(part) == {"tensor"} else {k: together(v) for k, v in part.items()}
        return part

    text = json.dumps(apart(state, ""))
    loaded = load(save(tensors))
    restored: dict[str, Any] = together(json.loads(text))
    return restored


def same(a: tuple[Tensor | None, ...], b: tuple[Tensor | None, ...]) -> bool:
    """Bitwise equality, field by field."""

    def equal(x: Tensor | None, y: Tensor | None) -> bool:
        return x is y if x is None or y is None else x.dtype == y.dtype and torch.equal(x, y)

    return all(map(equal, a, b))
