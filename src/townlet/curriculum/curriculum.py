"""Fixed and adaptive curricula; in an adaptive one each row advances when it does well and retreats when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from townlet.curriculum.spec import ALWAYS, SHIPPED_STAGES, AdaptiveSpec, FixedSpec, StagedSpec
from townlet.errors import TownletError, did_you_mean
from townlet.interfaces.state import State, copy_tensor
from townlet.interfaces.vec_env import Episodes

LENGTH, RETURN, ENTROPY = range(3)  # columns of `window`; `first` has the first two
STATE_NAMES: Final = ("stage", "steps", "episodes", "window", "first")


@dataclass(frozen=True)
class StageChange:
    """A change of one row's stage, with the reason in words and the statistics that it is based on."""

    row: int
    from_stage: int
    to_stage: int
    reason: str
    survival: float  # mean episode length as a fraction of max_steps
    progress: float  # change of the reward per step since the first episodes at the stage
    entropy: float  # mean normalized entropy of the behavior policy, in [0, 1]


class Curriculum:
    """Assigns a stage to each row. This base class is the fixed curriculum: all rows stay at one stage.

    All tensors are on the CPU; the environment applies `settings()`.
    """

    needs_entropy = False  # whether episodes must carry the entropy of the behavior policy

    def __init__(
        self, spec: StagedSpec, numbers: range, rows: int, meters: Sequence[str], rewards: Sequence[str]
    ) -> None:
        """`numbers` are the numbers of the stages to use, counted from 1; every row starts at the first of them."""
        self._first_stage = numbers[0]
        self._tables = compile_stages(spec, numbers, meters, rewards)
        self.stage = torch.full((rows,), numbers[0])  # [N] int64

    def update(self, episodes: Episodes) -> list[StageChange]:
        """Record finished episodes; returns the changes of stage, in the order of the rows.

        An episode of these rows has just ended, so settings applied now hold for the next one.
        """
        return []

    def settings(self, rows: Tensor | None = None) -> dict[str, Tensor]:
        """Town settings for all rows or some: multiplier [N], active [N] bits, reward_mix [N, R]."""
        index = (self.stage if rows is None else self.stage[rows]) - self._first_stage
        return {name: table[index] for name, table in self._tables.items()}

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """Nothing to restore: the stage is set in the recipe."""


class AdaptiveCurriculum(Curriculum):
    """A stage for each row, changed according to the row's last K (`spec.episodes`) finished episodes at that stage."""

    needs_entropy = True

    def __init__(
        self, spec: AdaptiveSpec, rows: int, max_steps: int, meters: Sequence[str], rewards: Sequence[str]
    ) -> None:
        self.spec, self.max_steps = spec, max_steps
        self.last_stage = len(spec.stage_list)
        super().__init__(spec, range(1, self.last_stage + 1), rows, meters, rewards)
        self.steps = torch.zeros(rows, dtype=torch.int64)  # [N] steps of finished episodes at the stage
        self.episodes = torch.zeros(rows, dtype=torch.int64)  # [N] finished episodes at the stage
        self.window = torch.zeros((rows, spec.episodes, 3), dtype=torch.float64)  # [N, K, 3] ring buffer of episodes
        self.first = torch.zeros((rows, 2), dtype=torch.float64)  # [N, 2] summed length and return of the first K

    def update(self, episodes: Episodes) -> list[StageChange]:
        """Record finished episodes, then advance or retreat their rows."""
        rows = episodes.rows
        self._record(episodes)
        mean, first = self.window[rows].mean(1), self.first[rows]  # meaningless before there are K episodes
        survival, entropy = mean[:, LENGTH] / self.max_steps, mean[:, ENTROPY]
        # Reward per step over all K episodes together, so that each counts by its number of steps.
        progress = mean[:, RETURN] / mean[:, LENGTH] - first[:, RETURN] / first[:, LENGTH]
        spec, stage = self.spec, self.stage[rows]
        enough = (self.steps[rows] >= spec.steps) & (self.episodes[rows] >= spec.episodes)
        failing = (survival < spec.retreat) | ((progress < -spec.delta) & (survival < spec.advance))
        retreat = enough & (stage > 1) & failing
        passing = (survival > spec.advance) & (progress >= -spec.delta) & (entropy < spec.entropy)
        advance = enough & (stage < self.last_stage) & passing  # never with retreat: a failing row is below `advance`
        changed = torch.nonzero(retreat | advance).squeeze(1).tolist()
        changes = [
            self._make_change(int(rows[i]), bool(advance[i]), float(survival[i]), float(progress[i]), float(entropy[i]))
            for i in changed
        ]
        self.stage[rows[changed]] += torch.where(advance[changed], 1, -1)
        for statistic in (self.steps, self.episodes, self.window, self.first):
            statistic[rows[changed]] = 0
        return changes

    def _record(self, episodes: Episodes) -> None:
        rows, count = episodes.rows, self.episodes[episodes.rows]
        columns = torch.stack((episodes.length.double(), episodes.reward.double(), episodes.entropy.double()), 1)
        self.window[rows, count % self.spec.episodes] = columns
        early = (count < self.spec.episodes).unsqueeze(1)
        self.first[rows] += columns[:, :ENTROPY] * early
        self.episodes[rows] += 1
        self.steps[rows] += episodes.length

    def _make_change(self, row: int, advance: bool, survival: float, progress: float, entropy: float) -> StageChange:
        spec, stage = self.spec, int(self.stage[row])
        to = stage + 1 if advance else stage - 1
        survived = f"survived {survival * self.max_steps:.0f} of {self.max_steps} steps"
        if advance:
            cause = (
                f"{survived} ({survival:.2f} > {spec.advance:g}), "
                f"change of reward per step {progress:+.3f} ≥ {-spec.delta:g}, entropy {entropy:.2f} < {spec.entropy:g}"
            )
        elif survival < spec.retreat:
            cause = f"{survived} ({survival:.2f} < {spec.retreat:g})"
        else:
            drop = f"change of reward per step {progress:+.3f} < {-spec.delta:g}"
            cause = f"{drop} and {survived} ({survival:.2f} < {spec.advance:g})"
        history = f"{int(self.episodes[row])} episodes and {int(self.steps[row])} steps at stage {stage}"
        verb = "advance" if advance else "retreat"
        reason = f"{verb} to stage {to}: {cause}, over the last {spec.episodes} of {history}"
        return StageChange(row, stage, to, reason, survival, progress, entropy)

    def state(self) -> State:
        return {name: getattr(self, name) for name in STATE_NAMES}

    def restore(self, state: State) -> None:
        for name in STATE_NAMES:
            copy_tensor(getattr(self, name), state[name], f"curriculum.{name}")
        if not bool(((self.stage >= 1) & (self.stage <= self.last_stage)).all()):
            what = f"the saved stage of a row is outside 1 … {self.last_stage}"
            raise TownletError(what, "resume with the stages of that run")


def make_curriculum(
    spec: FixedSpec | AdaptiveSpec, rows: int, max_steps: int, meters: Sequence[str], rewards: Sequence[str]
) -> Curriculum:
    """The curriculum for N rows of a world with these meters and rewards, in the world's order."""
    if isinstance(spec, FixedSpec):  # only its stage is compiled: the others may use rewards that the world lacks
        return Curriculum(spec, range(spec.stage, spec.stage + 1), rows, meters, rewards)
    return AdaptiveCurriculum(spec, rows, max_steps, meters, rewards)


def compile_stages(
    spec: StagedSpec, numbers: Sequence[int], meters: Sequence[str], rewards: Sequence[str]
) -> dict[str, Tensor]:
    """Settings of the S stages with these numbers: multiplier [S], active [S] (bit m: meter m), reward_mix [S, R]."""
    # The shipped stages name meters of the standard town; a smaller world may lack some of them.
    lenient = spec.stage_list in SHIPPED_STAGES.values()
    always = _bits(spec.always, meters, lenient=spec.always == ALWAYS, part="always")
    multipliers, active, weights = [], [], []
    for number in numbers:
        stage = spec.stage_list[number - 1]
        bits = always | _bits(stage.active, meters, lenient=lenient, part=f"stage {number}")
        if not bits:
            raise TownletError(f"stage {number} activates no meter of this world", f"name some of {', '.join(meters)}")
        stage_weights = stage.reward_weights(rewards)
        if lacking := [name for name in stage_weights if name not in rewards]:
            mode = f"is {stage.reward} and " if isinstance(stage.reward, str) else ""
            needed = ", ".join(stage_weights)
            what = f"stage {number} of the curriculum {mode}uses the reward '{lacking[0]}', which this world lacks"
            raise TownletError(what, f"add it to the world's rewards: rewards=[{needed}]")
        multipliers.append(stage.depletion)
        active.append(bits)
        weights.append([stage_weights[name] for name in rewards])
    return {
        "multiplier": torch.tensor(multipliers, dtype=torch.float32),
        "active": torch.tensor(active, dtype=torch.int32),
        "reward_mix": torch.tensor(weights, dtype=torch.float32),
    }


def _bits(names: Sequence[str], meters: Sequence[str], *, lenient: bool, part: str) -> int:
    """Bit m is set if meter m is named."""
    bits = 0
    for name in names:
        if name in meters:
            bits |= 1 << meters.index(name)
        elif not lenient:
            what = f"the curriculum names a meter '{name}' in {part}, which this world lacks"
            raise TownletError(what, did_you_mean(name, meters))
    return bits
