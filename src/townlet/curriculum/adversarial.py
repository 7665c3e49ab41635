"""The curriculum that pushes back: each row goes on when it does well and back when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from townlet.curriculum.curriculum import StageChange
from townlet.curriculum.spec import AdversarialSpec
from townlet.curriculum.stages import compile_stages
from townlet.errors import TownletError
from townlet.interfaces.episodes import Episodes
from townlet.interfaces.restore import copy_tensor
from townlet.interfaces.state import State

LENGTH, REWARD, ENTROPY = range(3)  # columns of the window
KEPT: Final = ("stage", "steps", "episodes", "window", "first")


class Adversarial:
    """A stage for each row, moved by the row's last K finished episodes at that stage."""

    needs_entropy = True

    def __init__(
        self, spec: AdversarialSpec, rows: int, max_steps: int, meters: Sequence[str], rewards: Sequence[str]
    ) -> None:
        self.spec, self.max_steps = spec, max_steps
        self.last_stage = len(spec.stage_list)
        self._tables = compile_stages(spec, range(1, self.last_stage + 1), meters, rewards)
        self.stage = torch.ones(rows, dtype=torch.int64)
        self.steps = torch.zeros(rows, dtype=torch.int64)  # of finished episodes at the stage
        self.episodes = torch.zeros(rows, dtype=torch.int64)  # finished at the stage
        self.window = torch.zeros((rows, spec.episodes, 3), dtype=torch.float64)  # the last K, as a ring
        self.first = torch.zeros((rows, 2), dtype=torch.float64)  # length and reward of the first K, summed

    def finished(self, episodes: Episodes) -> list[StageChange]:
        """Take in finished episodes, then judge their rows."""
        rows = episodes.rows
        self._take_in(episodes)
        survival, progress, entropy = self._figures(rows)
        spec, stage = self.spec, self.stage[rows]
        judged = (self.steps[rows] >= spec.steps) & (self.episodes[rows] >= spec.episodes)
        failing = (survival < spec.retreat) | ((progress < -spec.delta) & (survival < spec.advance))
        retreat = judged & (stage > 1) & failing
        able = (survival > spec.advance) & (progress >= -spec.delta) & (entropy < spec.entropy)
        advance = judged & (stage < self.last_stage) & able  # never both: who fails survives less than `advance`
        changed = torch.nonzero(retreat | advance).squeeze(1).tolist()
        changes = [
            self._change(int(rows[i]), bool(advance[i]), float(survival[i]), float(progress[i]), float(entropy[i]))
            for i in changed
        ]
        self._move(rows[changed], advance[changed])
        return changes

    def _take_in(self, episodes: Episodes) -> None:
        rows, count = episodes.rows, self.episodes[episodes.rows]
        columns = torch.stack((episodes.length.double(), episodes.reward.double(), episodes.entropy.double()), 1)
        self.window[rows, count % self.spec.episodes] = columns
        early = (count < self.spec.episodes).unsqueeze(1)
        self.first[rows] += columns[:, :ENTROPY] * early
        self.episodes[rows] += 1
        self.steps[rows] += episodes.length

    def _figures(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Survival, progress and entropy [k] over the last K episodes; they mean nothing before there are K."""
        mean, first = self.window[rows].mean(1), self.first[rows]
        survival = mean[:, LENGTH] / self.max_steps
        # Reward per step of all K episodes together, so that a short one weighs no more than its steps.
        progress = mean[:, REWARD] / mean[:, LENGTH] - first[:, REWARD] / first[:, LENGTH]
        return survival, progress, mean[:, ENTROPY]

    def _change(self, row: int, advance: bool, survival: float, progress: float, entropy: float) -> StageChange:
        """The change of one row, told with the figures that decided it."""
        spec, stage = self.spec, int(self.stage[row])
        lived = f"lived {survival * self.max_steps:.0f} of {self.max_steps} steps"
        if advance:
            to, why = (
                stage + 1,
                (
                    f"{lived} ({survival:.2f} > {spec.advance:g}), reward per step {progress:+.3f} ≥ {-spec.delta:g}, "
                    f"entropy {entropy:.2f} < {spec.entropy:g}"
                ),
            )
        elif survival < spec.retreat:
            to, why = stage - 1, f"{lived} ({survival:.2f} < {spec.retreat:g})"
        else:
            fall = f"reward per step {progress:+.3f} < {-spec.delta:g}"
            to, why = stage - 1, f"{fall} and {lived} ({survival:.2f} < {spec.advance:g})"
        since = f"{int(self.episodes[row])} episodes and {int(self.steps[row])} steps at stage {stage}"
        reason = f"{'on' if advance else 'back'} to stage {to}: {why}, over the last {spec.episodes} of {since}"
        return StageChange(row, stage, to, reason, survival, progress, entropy)

    def _move(self, rows: Tensor, advance: Tensor) -> None:
        """Change the stages and begin their windows anew."""
        self.stage[rows] += torch.where(advance, 1, -1)
        for kept in (self.steps, self.episodes, self.window, self.first):
            kept[rows] = 0

    def settings(self, rows: Tensor | None = None) -> dict[str, Tensor]:
        """The settings of each row's stage, by the names that a town knows."""
        return self._tables.settings((self.stage if rows is None else self.stage[rows]) - 1)

    def state(self) -> State:
        """Stages and windows of all rows."""
        return {name: getattr(self, name) for name in KEPT}

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
        for name in KEPT:
            copy_tensor(getattr(self, name), state[name], f"curriculum.{name}")
        if not bool(((self.stage >= 1) & (self.stage <= self.last_stage)).all()):
            raise TownletError(
                f"a row was kept at a stage outside 1 … {self.last_stage}", "resume with the stages of that run"
            )
