"""Compile stages for one world: meter names become bits, reward names become columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from townlet.curriculum.spec import ALWAYS, SHIPPED_STAGES, StagedSpec, StageSpec
from townlet.errors import TownletError, did_you_mean


class StageTables(NamedTuple):
    """Settings of S stages as tensors."""

    multiplier: Tensor  # [S] float32
    active: Tensor  # [S] int32, bit m: meter m is active
    reward_mix: Tensor  # [S, R] float32

    def settings(self, indices: Tensor) -> dict[str, Tensor]:
        """Settings of k rows by name, given the index [k] of each row's stage in these tables."""
        return {name: table[indices] for name, table in self._asdict().items()}


def compile_stages(
    spec: StagedSpec, numbers: Sequence[int], meters: Sequence[str], rewards: Sequence[str]
) -> StageTables:
    """Tables of the stages with these numbers, for a world with these meters and rewards."""
    stages = [spec.stage_list[number - 1] for number in numbers]
    # The shipped stages name meters of the standard town; a smaller world may lack some of them.
    lenient = spec.stage_list in SHIPPED_STAGES.values()
    always = _bits(spec.always, meters, lenient=spec.always == ALWAYS, part="always")
    active, weights = [], []
    for number, stage in zip(numbers, stages, strict=True):
        bits = always | _bits(stage.active, meters, lenient=lenient, part=f"stage {number}")
        if not bits:
            raise TownletError(f"stage {number} has no active meter in this world", f"name some of {', '.join(meters)}")
        active.append(bits)
        weights.append(_reward_weights(stage, number, rewards))
    return StageTables(
        multiplier=torch.tensor([stage.depletion for stage in stages], dtype=torch.float32),
        active=torch.tensor(active, dtype=torch.int32),
        reward_mix=torch.tensor(weights, dtype=torch.float32),
    )


def _bits(names: Sequence[str], meters: Sequence[str], *, lenient: bool, part: str) -> int:
    """Bit m is set if meter m is named."""
    bits = 0
    for name in names:
        if name in meters:
            bits |= 1 << meters.index(name)
        elif not lenient:
            raise TownletError(f"the curriculum's {part} names a meter '{name}'", did_you_mean(name, meters))
    return bits


def _reward_weights(stage: StageSpec, number: int, rewards: Sequence[str]) -> list[float]:
    """The weight of each of the world's rewards; 0 if the stage does not name it."""
    for name in stage.reward_weights:
        if name not in rewards:
            mode = f"is {stage.reward} and " if isinstance(stage.reward, str) else ""
            needed = ", ".join(dict.fromkeys((*rewards, *stage.reward_weights)))
            raise TownletError(
                f"stage {number} of the curriculum {mode}uses the reward '{name}', which this world does not have",
                f"add it to the world's rewards: rewards=[{needed}]",
            )
    return [stage.reward_weights.get(name, 0.0) for name in rewards]
