"""A batched environment: N rows on one device, each of which resets by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from townlet.interfaces.layout import ObservationLayout

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Discrete:
    """One of n: actions [N] int64, 0 … n − 1, each with a name for people."""

    names: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.names)

    @property
    def choices(self) -> int:
        """Columns of the mask."""
        return self.n


@dataclass(frozen=True)
class Binary:
    """n binary actions: [N, n] int64, each 0 or 1. They cannot be masked."""

    names: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.names)

    @property
    def choices(self) -> int:
        """Columns of the mask."""
        return 0


@dataclass(frozen=True)
class Continuous:
    """n continuous actions: [N, n] float32, each clipped to its range from low to high by the environment."""

    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def n(self) -> int:
        return len(self.names)

    @property
    def choices(self) -> int:
        """Columns of the mask."""
        return 0


Actions = Discrete | Binary | Continuous


class MaskedObs(NamedTuple):
    """What an agent acts on: obs [N, D] float32 and mask [N, K] bool (true = makes sense), K = `actions.choices`."""

    obs: Tensor
    mask: Tensor


class Step(NamedTuple):
    """What one step brought. Rows that ended already show the first moment of their next episode.

    reward [N] is the sum of components [N, R], which `VecEnv.components` names. terminated (the agent died
    or reached the goal) and truncated (time ran out) are never both true.

    Where an environment needs a step to begin anew, rows that ended still show what they saw last, and in the step
    after they are `void` [N] bool: they then show the first moment of their next episode, the action was not used,
    the reward is 0, and nothing can be learned from it. None where this never happens.
    """

    obs: Tensor
    mask: Tensor
    reward: Tensor
    components: Tensor
    terminated: Tensor
    truncated: Tensor
    autoreset_step: Tensor | None = None

    @property
    def episode_starts(self) -> Tensor:
        """Rows [N] bool that show the first moment of an episode."""
        return self.terminated | self.truncated if self.autoreset_step is None else self.autoreset_step


class FinalObs(NamedTuple):
    """Rows whose episode ended in the last step, and what they saw before their reset."""

    rows: Tensor  # [k] int64, ascending
    obs: Tensor  # [k, D]
    mask: Tensor  # [k, K]


class VecEnv(Protocol):
    """N independent rows. Tensors may be reused: they hold until the next call, copy what must stay."""

    rows: int
    device: str
    layout: ObservationLayout
    components: tuple[str, ...]
    exact: bool  # whether `restore` goes on to the bit; else it begins new episodes
    autoreset_steps: bool  # whether rows need a step to begin anew, see `Step.autoreset_step`

    @property
    def actions(self) -> Actions:
        """What can be done."""

    def reset(self, seed: int) -> MaskedObs:
        """Begin anew; the same seed gives the same episodes."""

    def step(self, actions: Tensor) -> Step:
        """Act in every row, as `actions` says. A masked action is legal and wasted."""

    def final_obs(self) -> FinalObs:
        """What rows that ended in the last step saw last: the state a truncated episode bootstraps from."""

    def state(self) -> Mapping[str, Any]:
        """Everything that decides what happens next, by name."""

    def restore(self, state: Mapping[str, Any]) -> MaskedObs:
        """Go on exactly where `state` was taken, or with new episodes where that is not `exact`."""

    def close(self) -> None:
        """Give back threads, windows and memory."""


class DeviceVecEnv(VecEnv, Protocol):
    """One that can make many steps on its device before anybody looks at one, always in the same tensors."""

    @property
    def can_step_in_place(self) -> bool:
        """Whether it really can, as it was made."""

    def track_truncations(self) -> None:
        """From now on `truncated_obs` can be asked for."""

    def step_in_place(self, actions: Tensor) -> Step:
        """As `step`; nothing is checked, and the host waits for nothing."""

    def truncated_obs(self) -> Tensor:
        """What each row saw last in its last episode that time cut short [N, D]; anything where there was none."""

    def final_values(self) -> Tensor:
        """What is known of the end of episodes [N, E], as if all had ended with the last step."""

    def written_tensors(self) -> list[Tensor]:
        """All that a step writes: what must be put back by whoever tries one out."""


class ConfigurableVecEnv(VecEnv, Protocol):
    """One whose rows can be made easier or harder from outside, by a curriculum."""

    def set(self, rows: Any = None, **settings: Any) -> MaskedObs:
        """Set something in some rows (all by default), one value for each; what all rows see now."""


class Episodes(NamedTuple):
    """k finished episodes, each column [k] on the CPU. Only `terminated` tells death from running out of time."""

    rows: Tensor  # int64, ascending
    length: Tensor  # int64, steps lived
    reward: Tensor  # float32, sum of the world's own rewards, unscaled
    intrinsic: Tensor  # float32, sum of the unweighted intrinsic reward; 0 without one
    entropy: Tensor  # float32, mean normalised entropy of the behaviour policy in [0, 1]; 0 where nobody asks
    terminated: Tensor  # bool
    guidance: Tensor  # float32, sum of what guides learning beside the world's own rewards; 0 without any

    def __len__(self) -> int:  # a NamedTuple would count its columns
        return int(self.rows.shape[0])
