"""Batched environments: N independent rows on one device, with autoreset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from townlet.interfaces.layout import ObservationLayout

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class _ActionSpace:
    """An action space with n named actions or action dimensions."""

    names: tuple[str, ...]

    @property
    def n(self) -> int:
        """The number of actions, or of action dimensions."""
        return len(self.names)

    @property
    def choices(self) -> int:
        """Columns of the mask: n for discrete actions; others cannot be masked."""
        return 0


class Discrete(_ActionSpace):
    """One of n actions: [N] int64 in 0 … n − 1."""

    @property
    def choices(self) -> int:
        return self.n


class Binary(_ActionSpace):
    """n binary actions: [N, n] int64, each 0 or 1."""


@dataclass(frozen=True)
class Continuous(_ActionSpace):
    """n continuous actions: [N, n] float32; the environment clips each to [low, high]."""

    low: tuple[float, ...]
    high: tuple[float, ...]


Actions = Discrete | Binary | Continuous


class MaskedObs(NamedTuple):
    """Input of a policy.

    Attributes:
        obs: observations [N, D] float32.
        mask: valid actions [N, K] bool, K = `actions.choices`.
    """

    obs: Tensor
    mask: Tensor


class Step(NamedTuple):
    """Result of one step. Rows whose episode ended return the first observation of their next episode.

    reward [N] is the sum of components [N, R], named by `VecEnv.components`. terminated (the agent died or reached the
    goal) and truncated (the time limit was reached) are never both true.

    Environments with next-step autoreset return the final observation first. The following step of that row is an
    autoreset step: it returns the first observation of the next episode, ignores the action, has reward 0 and must not
    be learned from.

    Attributes:
        obs: observations [N, D] float32.
        mask: valid actions [N, K] bool.
        reward: rewards [N] float32.
        components: components of the rewards [N, R] float32.
        terminated: rows [N] bool whose episode was terminated.
        truncated: rows [N] bool whose episode was truncated.
        autoreset_step: rows [N] bool that were reset; None if the environment resets within the same step.
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
        """Rows [N] bool whose observation is the first of an episode."""
        return self.terminated | self.truncated if self.autoreset_step is None else self.autoreset_step


class FinalObs(NamedTuple):
    """Final observations and masks of the k rows whose episode ended in the last step.

    Attributes:
        rows: numbers of the rows [k] int64, ascending.
        obs: observations [k, D] float32.
        mask: valid actions [k, K] bool.
    """

    rows: Tensor
    obs: Tensor
    mask: Tensor


class VecEnv(Protocol):
    """N independent rows. Returned tensors are valid until the next call; copy what must outlive it.

    Attributes:
        rows: the number of rows, N.
        device: the device of the tensors.
        layout: the parts of an observation.
        components: the names of the reward components.
        exact: whether `restore` continues bit for bit; otherwise it starts new episodes.
        autoreset_steps: whether a reset takes a step, see `Step.autoreset_step`.
    """

    rows: int
    device: str
    layout: ObservationLayout
    components: tuple[str, ...]
    exact: bool
    autoreset_steps: bool

    @property
    def actions(self) -> Actions:
        """The action space."""

    def reset(self, seed: int) -> MaskedObs:
        """Start new episodes in all rows; the same seed gives the same episodes."""

    def step(self, actions: Tensor) -> Step:
        """Take one action in every row. Masked (invalid) actions are accepted; the environment defines what they do."""

    def final_obs(self) -> FinalObs:
        """Final observations of the episodes that ended in the last step, for bootstrapping after truncation."""

    def state(self) -> Mapping[str, Any]:
        """Everything that determines future steps, by name."""

    def restore(self, state: Mapping[str, Any]) -> MaskedObs:
        """Continue from a state, or with new episodes if the environment is not `exact`."""

    def close(self) -> None:
        """Release threads, processes, windows and memory."""


class DeviceVecEnv(VecEnv, Protocol):
    """An environment that can run many steps on its device, in the same tensors, without synchronizing the host."""

    @property
    def can_step_in_place(self) -> bool:
        """Whether this instance supports `step_in_place`."""

    def track_truncations(self) -> None:
        """Start recording `truncated_obs`."""

    def step_in_place(self, actions: Tensor) -> Step:
        """Like `step`, without checks and without synchronizing the host."""

    def truncated_obs(self) -> Tensor:
        """Final observation [N, D] of each row's last truncated episode; undefined if there was none."""

    def final_values(self) -> Tensor:
        """Final values [N, E] as in `Task.final_values`, as if every row's episode had ended in the last step."""

    def written_tensors(self) -> list[Tensor]:
        """All tensors that a step writes, to be restored after a trial step."""


class ConfigurableVecEnv(VecEnv, Protocol):
    """An environment whose difficulty a curriculum can set per row."""

    def set(self, rows: Any = None, **settings: Any) -> MaskedObs:
        """Change settings of some rows (by default all), each to one value per row; returns all observations."""


class Episodes(NamedTuple):
    """k finished episodes: columns [k] on the CPU. `terminated` is false where the episode was truncated."""

    rows: Tensor  # int64; ascending among episodes that ended in the same step
    length: Tensor  # int64, steps
    reward: Tensor  # float32, sum of the environment's rewards without shaping, unscaled
    intrinsic: Tensor  # float32, sum of the unweighted intrinsic reward; 0 without one
    entropy: Tensor  # float32, mean normalized entropy of the behavior policy in [0, 1]; 0 if not tracked
    terminated: Tensor  # bool
    guidance: Tensor  # float32, sum of shaping rewards; 0 without shaping

    def __len__(self) -> int:  # a NamedTuple would count its columns
        return int(self.rows.shape[0])
