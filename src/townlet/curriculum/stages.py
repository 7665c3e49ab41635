"""Stages against one world: names become bits and columns, and what does not fit is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from townlet.curriculum.spec import ALWAYS, SHIPPED, Staged, StageSpec
from townlet.errors import TownletError, did_you_mean


class StageTables(NamedTuple):
    """What each of S stages sets."""

    multiplier: Tensor  # [S] float32
    active: Tensor  # [S] int32, bit m: meter m takes part
    reward_mix: Tensor  # [S, R] float32

    def settings(self, places: Tensor) -> dict[str, Tensor]:
        """The settings of rows whose stages stand at these places [k], by the names that a town knows."""
        return {name: table[places] for name, table in self._asdict().items()}


def compile_stages(spec: Staged, numbers: Sequence[int], meters: Sequence[str], rewards: Sequence[str]) -> StageTables:
    """The tables of the stages with these numbers in a world with these meters and rewards."""
    stages = [spec.stage_list[number - 1] for number in numbers]
    # The shipped stages speak of the standard town; a smaller world simply lacks some of its meters.
    lenient = spec.stage_list in SHIPPED.values()
    always = _bits(spec.always, meters, lenient=spec.always == ALWAYS, place="always")
    active, mixes = [], []
    for number, stage in zip(numbers, stages, strict=True):
        bits = always | _bits(stage.active, meters, lenient=lenient, place=f"stage {number}")
        if not bits:
            raise TownletError(
                f"stage {number} has no active meter in this world",
                f"name some of {', '.join(meters)}",
            )
        active.append(bits)
        mixes.append(_mix(stage, number, rewards))
    return StageTables(
        multiplier=torch.tensor([stage.depletion for stage in stages], dtype=torch.float32),
        active=torch.tensor(active, dtype=torch.int32),
        reward_mix=torch.tensor(mixes, dtype=torch.float32),
    )


def _bits(names: Sequence[str], meters: Sequence[str], *, lenient: bool, place: str) -> int:
    """One bit for each meter."""
    bits = 0
    for name in names:
        if name in meters:
            bits |= 1 << meters.index(name)
        elif not lenient:
            raise TownletError(f"the curriculum's {place} names a meter '{name}'", did_you_mean(name, meters))
    return bits


def _mix(stage: StageSpec, number: int, rewards: Sequence[str]) -> list[float]:
    """The share of each of the world's rewards; what the stage does not name pays nothing."""
    for name in stage.shares:
        if name not in rewards:
            word = f"is {stage.reward} and " if isinstance(stage.reward, str) else ""
            needed = ", ".join(dict.fromkeys((*rewards, *stage.shares)))
            raise TownletError(
                f"stage {number} of the curriculum {word}pays '{name}', which this world does not",
                f"add it to the world's rewards: rewards=[{needed}]",
            )
    return [stage.shares.get(name, 0.0) for name in rewards]
