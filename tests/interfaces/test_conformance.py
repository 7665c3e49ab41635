"""The conformance suite passes for every town on every engine, and fails for every planted fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from townlet.interfaces import conformance
from townlet.interfaces.vec_env import FinalObs, MaskedObs, Step
from townlet.town.env import Town
from townlet.town.world.load import load, shipped
from townlet.town.world.tables import World

CHECKS = {check.__name__: check for check in conformance.CHECKS}


@cache
def load_short(world: str, limit: int) -> World:
    """A world whose episodes end early, so that few steps include some resets."""
    return load(world, [f"max_steps={limit}"])


@pytest.mark.parametrize("world", shipped())
@pytest.mark.parametrize("requirement", CHECKS)
def test_numba_town_conforms(world: str, requirement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "STEPS", 60)
    CHECKS[requirement](lambda rows: Town(load_short(world, 24), rows, engine="numba"))


# What town-l3 and town-foggy have beside the others is followed by the laws on this engine too.
@pytest.mark.parametrize(
    "world", ["town", "town-aspatial", *(pytest.param(w, marks=pytest.mark.long) for w in ("town-l3", "town-foggy"))]
)
@pytest.mark.parametrize("requirement", CHECKS)
def test_torch_town_conforms(world: str, requirement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "STEPS", 20)
    CHECKS[requirement](lambda rows: Town(load_short(world, 8), rows, engine="torch"))


class FaultyTown(Town):
    """A town with one fault."""

    def __init__(self, fault: str, rows: int) -> None:
        super().__init__(load("town", ["max_steps=70"]), rows, engine="numba")
        self.fault = fault
        self.count = 0

    def reset(self, seed: int) -> MaskedObs:
        self.count += 1
        return super().reset(seed + (self.count if self.fault == "seed" else 0))

    def step(self, actions: Tensor) -> Step:
        if self.fault == "neighbors":
            actions = torch.full_like(actions, int(actions.max()))
        step = super().step(actions)
        changes: dict[str, Callable[[], dict[str, Tensor]]] = {
            "range": lambda: {"obs": step.obs + 2},
            "type": lambda: {"reward": step.reward.double()},
            "mask": lambda: {"mask": step.mask & False},
            "sum": lambda: {"components": step.components + 1},
            "ends": lambda: {"terminated": step.terminated | step.truncated},
            "nan": lambda: {"reward": step.reward * float("nan")},
        }
        return step._replace(**changes.get(self.fault, dict)())

    def final_obs(self) -> FinalObs:
        last = super().final_obs()
        return FinalObs(last.rows[:0], last.obs[:0], last.mask[:0]) if self.fault == "ended" else last

    def restore(self, state: Mapping[str, Any]) -> MaskedObs:
        if self.fault == "state":
            state = {name: values for name, values in state.items() if name != "age"}
        return super().restore(state)


@pytest.mark.parametrize(
    ("fault", "requirement"),
    [
        ("type", "shapes_and_types"),
        ("range", "values_in_range"),
        ("mask", "values_in_range"),
        ("sum", "values_in_range"),
        ("ends", "values_in_range"),
        ("nan", "values_in_range"),
        ("seed", "same_seed_same_episodes"),
        ("ended", "final_observations"),
        ("state", "restored_state_continues"),
        ("neighbors", "rows_are_independent"),
    ],
)
def test_faulty_environment_is_detected(fault: str, requirement: str) -> None:
    def make(rows: int) -> Town:
        return FaultyTown(fault, rows)

    with pytest.raises(conformance.NotConforming):
        CHECKS[requirement](make)
