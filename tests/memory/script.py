"""Scripted lives: what a memory is fed with, and what plain Python says it must give back.

Every moment has a number of its own in its observation, so that what is drawn tells where it comes from. Rewards are
small whole numbers and discounts powers of ½: sums are exact in any order.
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

from townlet.memory.storage import Transition

ACTIONS = 3
GOES_ON, DIES, TIME_OUT = 0, 1, 2


@dataclass(frozen=True)
class Script:
    """ends[t][r] tells how step t of row r ended."""

    ends: list[list[int]]

    @property
    def rows(self) -> int:
        return len(self.ends[0])

    def moment(self, t: int, row: int) -> float:
        """The number of what row sees before step t."""
        return float(t * self.rows + row)

    def next_moment(self, t: int, row: int) -> float:
        """The number of what step t led to: a final moment has one that no first moment has."""
        return self.moment(t + 1, row) if self.ends[t][row] == GOES_ON else -1.0 - self.moment(t, row)

    def reward(self, t: int, row: int) -> float:
        return float((7 * t + 3 * row) % 11 - 5)

    def intrinsic(self, t: int, row: int) -> float:
        return float((5 * t + row) % 7 * 4)

    def action(self, t: int, row: int) -> int:
        return (t + row) % ACTIONS

    def place(self, moment: float) -> tuple[int, int]:
        """Step and row of a moment."""
        return divmod(int(moment), self.rows)

    def steps(self, start: int = 0, stop: int | None = None) -> Iterator[Transition]:
        """What a memory is told, step by step; the tensors are reused, as an environment does."""
        n = self.rows
        obs, next_obs = torch.zeros(n, 2), torch.zeros(n, 2)
        for t in range(start, len(self.ends) if stop is None else stop):
            for row in range(n):
                obs[row] = self.moment(t, row)
                next_obs[row] = self.next_moment(t, row)
            ends = torch.tensor(self.ends[t])
            yield Transition(
                obs=obs,
                mask=mask_of(obs[:, 0]),
                actions=torch.tensor([self.action(t, row) for row in range(n)]),
                reward=torch.tensor([self.reward(t, row) for row in range(n)]),
                intrinsic=torch.tensor([self.intrinsic(t, row) for row in range(n)]),
                next_obs=next_obs,
                next_mask=mask_of(next_obs[:, 0]),
                terminated=ends == DIES,
                truncated=ends == TIME_OUT,
                hidden=torch.zeros(n, 0),
            )


def mask_of(moment: Tensor) -> Tensor:
    """A mask [..., K] that belongs to a moment."""
    return (moment.long().abs().unsqueeze(-1) + torch.arange(ACTIONS)) % 4 > 0


@st.composite
def scripts(draw: st.DrawFn, max_steps: int = 30) -> Script:
    """Lives of one to three rows, with ends of both kinds anywhere."""
    rows, steps = draw(st.integers(1, 3)), draw(st.integers(1, max_steps))
    fate = st.sampled_from((GOES_ON, GOES_ON, GOES_ON, GOES_ON, DIES, TIME_OUT))
    return Script(draw(st.lists(st.lists(fate, min_size=rows, max_size=rows), min_size=steps, max_size=steps)))


def survivors(steps: int, rows: int) -> Script:
    """Lives that never end."""
    return Script([[GOES_ON] * rows for _ in range(steps)])


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """A saved state as a new process reads it: tensors as bytes, all else as JSON."""
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
    return together(json.loads(text))  # type: ignore[no-any-return]


def same(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> bool:
    """Equal to the bit, field by field."""
    return all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(a, b, strict=True))
