"""Curricula: fixed, and adaptive (each row advances when it does well and retreats when it fails)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

from townlet.curriculum.spec import AdaptiveSpec, FixedSpec
from townlet.curriculum.stages import compile_stages
from townlet.errors import TownletError
from townlet.interfaces.state import State, Stateful, copy_tensor
from townlet.interfaces.vec_env import Episodes

LENGTH, REWARD, ENTROPY = range(3)  # columns of the window
STATE_NAMES: Final = ("stage", "steps", "episodes", "window", "first")


@dataclass(frozen=True)
class StageChange:
    """One row that changed its stage, with the reason in words and the statistics behind it."""

    row: int
    from_stage: int
    to_stage: int
    reason: str
    survival: float  # mean episode length as a fraction of max_steps
    progress: float  # change of reward per step
    entropy: float  # mean normalized entropy of the behavior policy, in [0, 1]


class Curriculum(Stateful, Protocol):
    """Assigns a stage to each row. All tensors are on the CPU; the environment applies `settings()`."""

    stage: Tensor  # [N] int64, from 1
    needs_entropy: bool  # whether episodes must carry the entropy of the behavior policy

    def update(self, episodes: Episodes) -> list[StageChange]:
        """Record finished episodes; returns the rows whose stage changed, in ascending order.

        Their episode has just ended, so settings applied now hold for the next one.
        """

    def settings(self, rows: Tensor | None = None) -> dict[str, Tensor]:
        """Town settings for all rows or some: multiplier [N], active [N] bits, reward_mix [N, R]."""


def make_curriculum(
    spec: FixedSpec | AdaptiveSpec, rows: int, max_steps: int, meters: Sequence[str], rewards: Sequence[str]
) -> Curriculum:
    """The curriculum for N rows of a world with these meters and rewards, in the world's order."""
    if isinstance(spec, FixedSpec):
        return FixedCurriculum(spec, rows, meters, rewards)
    return AdaptiveCurriculum(spec, rows, max_steps, meters, rewards)


class FixedCurriculum:
    """One stage for all rows, which never changes."""

    needs_entropy = False

    def __init__(self, spec: FixedSpec, rows: int, meters: Sequence[str], rewards: Sequence[str]) -> None:
        self.stage = torch.full((rows,), spec.stage)
        # Compile this stage only: the others may use rewards that the world need not have.
        self._tables = compile_stages(spec, [spec.stage], meters, rewards)

    def update(self, episodes: Episodes) -> list[StageChange]:
        return []

    def settings(self, rows: Tensor | None = None) -> dict[str, Tensor]:
        """Settings of the stage, repeated for each row."""
        count = len(self.stage) if rows is None else len(rows)
        return self._tables.settings(torch.zeros(count, dtype=torch.int64))

    def state(self) -> State:
        """Empty: the recipe holds the stage."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing to restore."""


class AdaptiveCurriculum:
    """A stage for each row, changed according to the row's last K finished episodes at that stage."""

    needs_entropy = True

    def __init__(
        self, spec: AdaptiveSpec, rows: int, max_steps: int, meters: Sequence[str], rewards: Sequence[str]
    ) -> None:
        self.spec, self.max_steps = spec, max_steps
        self.last_stage = len(spec.stage_list)
        self._tables = compile_stages(spec, range(1, self.last_stage + 1), meters, rewards)
        self.stage = torch.ones(rows, dtype=torch.int64)
        self.steps = torch.zeros(rows, dtype=torch.int64)  # in finished episodes at the stage
        self.episodes = torch.zeros(rows, dtype=torch.int64)  # finished at the stage
        self.window = torch.zeros((rows, spec.episodes, 3), dtype=torch.float64)  # ring buffer of the last K
        self.first = torch.zeros((rows, 2), dtype=torch.float64)  # summed length and reward of the first K

    def update(self, episodes: Episodes) -> list[StageChange]:
        """Record finished episodes, then advance or retreat their rows."""
        rows = episodes.rows
        self._record(episodes)
        survival, progress, entropy = self._statistics(rows)
        spec, stage = self.spec, self.stage[rows]
        enough = (self.steps[rows] >= spec.steps) & (self.episodes[rows] >= spec.episodes)
        failing = (survival < spec.retreat) | ((progress < -spec.delta) & (survival < spec.advance))
        retreat = enough & (stage > 1) & failing
        passing = (survival > spec.advance) & (progress >= -spec.delta) & (entropy < spec.entropy)
        advance = enough & (stage < self.last_stage) & passing  # never with retreat: a failing row is below `advance`
        changed = torch.nonzero(retreat | advance).squeeze(1).tolist()
        changes = [
            self._change(int(rows[i]), bool(advance[i]), float(survival[i]), float(progress[i]), float(entropy[i]))
            for i in changed
        ]
        self._move(rows[changed], advance[changed])
        return changes

    def _record(self, episodes: Episodes) -> None:
        rows, count = episodes.rows, self.episodes[episodes.rows]
        columns = torch.stack((episodes.length.double(), episodes.reward.double(), episodes.entropy.double()), 1)
        self.window[rows, count % self.spec.episodes] = columns
        early = (count < self.spec.episodes).unsqueeze(1)
        self.first[rows] += columns[:, :ENTROPY] * early
        self.episodes[rows] += 1
        self.steps[rows] += episodes.length

    def _statistics(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Survival, progress and entropy [k] over the last K episodes; meaningless before there are K."""
        mean, first = self.window[rows].mean(1), self.first[rows]
        survival = mean[:, LENGTH] / self.max_steps
        # Reward per step over all K episodes together, so that a short one weighs no more than its steps.
        progress = mean[:, REWARD] / mean[:, LENGTH] - first[:, REWARD] / first[:, LENGTH]
        return survival, progress, mean[:, ENTROPY]

    def _change(self, row: int, advance: bool, survival: float, progress: float, entropy: float) -> StageChange:
        """The change of one row, with its reason in words."""
        spec, stage = self.spec, int(self.stage[row])
        to = stage + 1 if advance else stage - 1
        survived = f"survived {survival * self.max_steps:.0f} of {self.max_steps} steps"
        if advance:
            cause = (
                f"{survived} ({survival:.2f} > {spec.advance:g}), reward per step {progress:+.3f} ≥ {-spec.delta:g}, "
                f"entropy {entropy:.2f} < {spec.entropy:g}"
            )
        elif survival < spec.retreat:
            cause = f"{survived} ({survival:.2f} < {spec.retreat:g})"
        else:
            drop = f"reward per step {progress:+.3f} < {-spec.delta:g}"
            cause = f"{drop} and {survived} ({survival:.2f} < {spec.advance:g})"
        history = f"{int(self.episodes[row])} episodes and {int(self.steps[row])} steps at stage {stage}"
        verb = "advance" if advance else "retreat"
        reason = f"{verb} to stage {to}: {cause}, over the last {spec.episodes} of {history}"
        return StageChange(row, stage, to, reason, survival, progress, entropy)

    def _move(self, rows: Tensor, advance: Tensor) -> None:
        """Change the stages and clear the statistics of these rows."""
        self.stage[rows] += torch.where(advance, 1, -1)
        for statistic in (self.steps, self.episodes, self.window, self.first):
            statistic[rows] = 0

    def settings(self, rows: Tensor | None = None) -> dict[str, Tensor]:
        return self._tables.settings((self.stage if rows is None else self.stage[rows]) - 1)

    def state(self) -> State:
        return {name: getattr(self, name) for name in STATE_NAMES}

    def restore(self, state: State) -> None:
        for name in STATE_NAMES:
            copy_tensor(getattr(self, name), state[name], f"curriculum.{name}")
        if not bool(((self.stage >= 1) & (self.stage <= self.last_stage)).all()):
            what = f"the saved stage of a row is outside 1 … {self.last_stage}"
            raise TownletError(what, "resume with the stages of that run")
