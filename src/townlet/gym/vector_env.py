"""Any Gymnasium vector environment as a `VecEnv`, in all three autoreset modes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import torch
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from townlet.errors import EnvironmentFailed, TownletError
from townlet.gym.env_state import EnvSaver
from townlet.gym.row_factory import describe_exception
from townlet.gym.row_processes import RowProcesses
from townlet.gym.spaces import Floats, ObservationEncoder, action_encoder, actions_from_space
from townlet.gym.wrappers.actions import ActionMasks
from townlet.gym.wrappers.spec import ActionMaskSpec
from townlet.gym.wrappers.transforms import ObservationTransform
from townlet.interfaces.state import SAME_SETTINGS, clone_state, copy_tensor, get_part
from townlet.interfaces.task import Scaling
from townlet.interfaces.vec_env import FinalObs, MaskedObs, Step
from townlet.rng import Streams
from townlet.window import INSTALL_PYGAME

SEED_RANGE: Final = 2**31  # accepted by every family of environments
FINITE_CHECK_LIMIT: Final = 4096  # larger observations are assumed to be images, which are always finite
CHECK_EVERY: Final = 64  # steps between checks of rewards and bounds
NUMERIC: Final = "biuf"  # kinds of NumPy types
Bools = NDArray[np.bool_]

logger = logging.getLogger(__name__)
_outside_warned: set[str] = set()  # environments whose observations were outside of their space


class GymVecEnv:
    """N rows of a Gymnasium environment, made by `make_vec`. On the CPU, each step writes to the same tensors."""

    components: tuple[str, ...] = ("reward",)

    def __init__(
        self,
        vec: VectorEnv[Any, Any, Any],
        name: str,
        *,
        device: str = "cpu",
        action_names: Sequence[str] | None = None,
        mask: ActionMaskSpec | None = None,
        transforms: Sequence[ObservationTransform] = (),
    ) -> None:
        self.vec, self.name, self.rows, self.device = vec, name, int(vec.num_envs), device
        try:
            self._mode = AutoresetMode(vec.metadata.get("autoreset_mode"))
        except ValueError:
            what = f"the vector environment of {name} declares no autoreset mode"
            raise TownletError(what, "write vectorization: sync") from None
        self._next_step = self.autoreset_steps = self._mode is AutoresetMode.NEXT_STEP
        self._encoder = ObservationEncoder(vec.single_observation_space, name)
        self.actions = actions_from_space(vec.single_action_space, action_names, name)
        self._encode_actions = action_encoder(vec.single_action_space, self.rows)
        self._saver: EnvSaver = self._call("reset", EnvSaver, vec)
        self.exact = self._saver.exact
        self._masks = ActionMasks(mask, self.rows, self.actions.choices, name)
        self._raw: Floats = np.zeros((self.rows, self._encoder.layout.size), np.float32)
        self._final_obs: Floats = np.zeros_like(self._raw)  # only the first k rows are used
        self._transforms = tuple(transforms)
        self.layout, self._obs = self._encoder.layout, self._raw
        for transform in self._transforms:
            self.layout, self._obs = transform.allocate(self.layout, self.rows, self._encoder)
        self._reward = np.zeros((self.rows, 1), np.float32)
        self._terminated, self._truncated, self._done, self._autoreset = (
            np.zeros(self.rows, np.bool_) for _ in range(4)
        )
        self._seed: int | None = None
        self._steps = 0
        self._restarts = 0  # number of restores that had to start new episodes
        self._step = self._read_step()
        no_rows = torch.zeros(0, dtype=torch.int64, device=device)
        self._none_ended = FinalObs(no_rows, self._step.obs[no_rows], self._step.mask[no_rows])
        self._ended = self._none_ended

    def _read_step(self) -> Step:
        """The buffers as tensors; on the CPU they share memory."""
        reward = self._reward
        buffers = [self._obs, self._masks.current, reward[:, 0], reward, self._terminated, self._truncated]
        if self._next_step:
            buffers.append(self._autoreset)
        return Step(*(torch.from_numpy(buffer).to(self.device) for buffer in buffers))

    def reset(self, seed: int) -> MaskedObs:
        """Start new episodes in all rows; each row has a separate random stream."""
        self._seed, self._restarts = Streams(seed).seed, 0
        for transform in self._transforms:
            transform.clear_statistics()
        return self._reset_rows(seed)

    def _reset_rows(self, seed: int) -> MaskedObs:
        seeds = Streams(seed).numpy("environments").integers(SEED_RANGE, size=self.rows).tolist()
        obs, info = self._call("reset", self.vec.reset, seed=seeds if self._saver.separate_envs else seeds[0])
        self._encoder.write(obs, self._raw)
        self._masks.read(info)
        self._done[:] = False
        transformed = self._raw
        for transform in self._transforms:
            transformed = transform.reset(transformed)
        return self._current_obs()

    def _current_obs(self) -> MaskedObs:
        """The current observations, with rewards and flags cleared: no step led to them."""
        for flags in (self._terminated, self._truncated, self._autoreset):
            flags[:] = False
        self._reward[:] = 0
        self._ended = self._none_ended
        if self.device != "cpu":
            self._step = self._read_step()
        return MaskedObs(self._step.obs, self._step.mask)

    def step(self, actions: Tensor) -> Step:
        """Step every row. In NEXT_STEP mode, rows that ended in the previous step are reset instead."""
        encoded = self._encode_actions(actions.cpu().numpy())
        raw_obs, reward, terminated, truncated, info = self._call("step", self.vec.step, encoded)
        self._reward[:, 0] = reward
        self._terminated[:] = terminated
        np.greater(truncated, terminated, out=self._truncated)  # termination wins if both are set
        is_first = self._mark_autoreset() if self._next_step else self._done
        np.logical_or(self._terminated, self._truncated, out=self._done)
        self._encoder.write(raw_obs, self._raw)
        if self._raw.shape[1] <= FINITE_CHECK_LIMIT and not np.isfinite(self._raw).all():
            row, index = np.argwhere(~np.isfinite(self._raw))[0].tolist()  # a NaN would spread to all weights
            error = ValueError(f"value {index} of the observation of row {row} is {self._raw[row, index]}")
            raise self._failed("step", error) from error
        if self._steps % CHECK_EVERY == 0:
            self._check_values(reward)
        self._steps += 1
        self._masks.read(info)
        rows = np.flatnonzero(self._done)
        final_obs, mask = self._raw[:0], self._masks.current[:0]
        if len(rows) and not self._next_step:
            final_obs, mask = self._final(rows, info)
        obs = self._raw
        for transform in self._transforms:
            obs, final_obs = transform.step(obs, is_first, rows, final_obs)
        if self.device != "cpu":
            self._step = self._read_step()
        if not len(rows):  # most steps end no episode
            self._ended = self._none_ended
        else:
            if self._next_step:
                final_obs, mask = obs[rows], self._masks.current[rows]
            self._ended = FinalObs(*(torch.from_numpy(array).to(self.device) for array in (rows, final_obs, mask)))
        return self._step

    def _call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the environment; its exceptions become `EnvironmentFailed`."""
        try:
            return function(*args, **kwargs)
        except TownletError:
            raise
        except DependencyNotInstalled as error:  # most environments import what draws them with their first image
            package, _, advice = str(error).partition(", ")
            fix = INSTALL_PYGAME if "pygame" in package else advice
            raise TownletError(f"{self.name} cannot be rendered: {package}", fix) from error
        except (Exception, SystemExit) as error:
            raise self._failed(name, error) from error

    def _failed(self, name: str, error: BaseException) -> EnvironmentFailed:
        ended = None
        if isinstance(self.vec, RowProcesses) and isinstance(error, EOFError | OSError):
            ended = self.vec.ended()
        what = f"{self.name} failed in {name}(): {ended or describe_exception(error)}"
        return EnvironmentFailed(what, "fix the environment")

    def _check_values(self, reward: Any) -> None:
        """Raise for rewards that are no numbers; warn once of values outside of the observation space."""
        if np.asarray(reward).dtype.kind not in NUMERIC:
            error = TypeError(f"the rewards are {reward!r}, not numbers")
            raise self._failed("step", error) from error
        if self.name in _outside_warned or self._raw.shape[1] > FINITE_CHECK_LIMIT:
            return
        low, high = self._encoder.low, self._encoder.high
        outside = (self._raw < low) | (self._raw > high)
        if outside.any():
            _outside_warned.add(self.name)
            row, index = np.argwhere(outside)[0].tolist()
            value = f"value {index} of the observation of row {row} is {self._raw[row, index]:g}"
            bounds = f"the bounds {low[index]:g} and {high[index]:g} of the observation space"
            logger.warning("%s: %s, outside of %s.", self.name, value, bounds)

    def _mark_autoreset(self) -> Bools:
        """Clear the results of rows that only reset in this step; returns the mask of these rows [N]."""
        autoreset = self._autoreset
        autoreset[:] = self._done
        if autoreset.any():
            self._reward[autoreset] = 0
            self._terminated[autoreset] = False
            self._truncated[autoreset] = False
        return autoreset

    def _final(self, rows: NDArray[np.int64], info: Mapping[str, Any]) -> tuple[Floats, Bools]:
        """Final observations [k, D] and masks [k, K] of ended rows, whose buffers then hold the next episode."""
        final_obs = self._final_obs[: len(rows)]
        if self._mode is AutoresetMode.DISABLED:
            final_obs[:] = self._raw[rows]
            mask = self._masks.current[rows]
            obs, reset_info = self._call("reset", self.vec.reset, options={"reset_mask": self._done.copy()})
            self._encoder.write(obs, self._raw)
            self._masks.read(reset_info, only=self._done)
            return final_obs, mask
        final = info["final_obs"]
        if isinstance(final, np.ndarray) and final.dtype == object:
            for k, row in enumerate(rows):
                self._encoder.write(final[row], final_obs[k : k + 1])
        else:
            all_rows = np.empty_like(self._raw)
            self._encoder.write(final, all_rows)
            final_obs[:] = all_rows[rows]
        return final_obs, self._masks.final(info, rows)

    def final_obs(self) -> FinalObs:
        """Final observations of the rows that ended in the last step."""
        return self._ended

    def copy_transforms(self, other: GymVecEnv) -> None:
        """Copy the normalization statistics of another environment and freeze them, for evaluation."""
        # An environment that stacks images natively lacks the last transform, the stack, which has no statistics.
        for own, source in zip(self._transforms, other._transforms, strict=False):
            own.copy_statistics(source)
        for transform in self._transforms:
            transform.frozen = True

    @property
    def scaling(self) -> Scaling | None:
        """The normalization of observations; None if there is none."""
        scaling: Scaling | None = None
        for transform in self._transforms:
            scaling = transform.scaling(scaling)
        return scaling

    def restore_transforms(self, state: Mapping[str, Any], *, exact: bool = False) -> None:
        """Restore the normalization statistics of a saved `state`; with `exact`, also running frame stacks."""
        saved = get_part(dict(state), "transforms", "environment")
        for index, transform in enumerate(self._transforms):
            transform.restore(get_part(saved, str(index), "environment"), exact=exact)

    def state(self) -> Mapping[str, Any]:
        """The complete state, or enough to start new episodes if it is not `exact`."""
        transforms = {str(index): transform.state() for index, transform in enumerate(self._transforms)}
        state: dict[str, Any] = {"rows": self.rows, "seed": self._seed, "restarts": self._restarts}
        state |= {"transforms": transforms, "interface": self._interface_hash()}
        if self.exact and self._seed is not None:
            state |= {**clone_state(self._buffers()), "environments": self._call("state", self._saver.state)}
        return state

    def _buffers(self) -> dict[str, NDArray[Any]]:
        return {"obs": self._obs, "mask": self._masks.current, "done": self._done}

    def restore(self, state: Mapping[str, Any]) -> MaskedObs:
        """Continue exactly where `state` was saved, or with new episodes if the environment is not `exact`."""
        saved = dict(state)
        if (rows := get_part(saved, "rows", "environment")) != self.rows:
            raise TownletError(f"{rows} rows of {self.name} were saved, expected {self.rows}", SAME_SETTINGS)
        if get_part(saved, "interface", "environment") != self._interface_hash():
            raise TownletError(f"the saved {self.name} has other observations or actions", SAME_SETTINGS)
        self._seed = int(get_part(saved, "seed", "environment") or 0)
        self._restarts = int(get_part(saved, "restarts", "environment"))
        exact = self.exact and "environments" in saved
        self.restore_transforms(saved, exact=exact)
        if not exact:
            self._restarts += 1
            return self._reset_rows(Streams(self._seed).key(f"begun anew {self._restarts}"))
        self._call("restore", self._saver.restore, saved["environments"])
        for name, buffer in self._buffers().items():
            copy_tensor(torch.from_numpy(buffer), get_part(saved, name, "environment"), f"{self.name}: {name}")
        return self._current_obs()

    def _interface_hash(self) -> str:
        """Hash of layout and actions, which must match to continue."""
        return blake2b(f"{self.layout}{self.actions}".encode(), digest_size=8).hexdigest()

    def frames(self) -> tuple[Any, ...]:
        """The rendered frame of every row; empty without a render mode."""
        return () if self.vec.render_mode is None else tuple(self._call("render", self.vec.render) or ())

    def close(self) -> None:
        """Release processes, windows and memory."""
        self.vec.close()
