"""Any Gymnasium vector environment as a `VecEnv`, in whichever of the three ways its rows begin anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from torch import Tensor

from townlet.errors import EnvironmentFailed, TownletError
from townlet.gym.env_state import EnvSaver
from townlet.gym.spaces import Floats, ObservationEncoder, action_encoder, actions_from_space
from townlet.gym.wrappers.actions import ActionMasks
from townlet.gym.wrappers.transforms import ObservationTransform, Scaling
from townlet.interfaces.state import SAME_RECIPE, clone_state, get_part
from townlet.interfaces.vec_env import FinalObs, MaskedObs, Step
from townlet.rng import Streams

SEED_RANGE = 2**31  # what every family of environments takes
FINITE_CHECK_LIMIT: Final = 4096  # numbers of an observation that are asked whether they are some; pictures always are
Bools = NDArray[np.bool_]


class GymVecEnv:
    """N rows of a Gymnasium environment as tensors, which are reused. Made by `townlet.gym.make.make_vec`."""

    components: tuple[str, ...] = ("reward",)

    def __init__(
        self,
        vec: VectorEnv[Any, Any, Any],
        name: str,
        keeper: Callable[[Any], EnvSaver],
        *,
        device: str = "cpu",
        action_names: Sequence[str] | None = None,
        masks: ActionMasks | None = None,
        stages: Sequence[ObservationTransform] = (),
        one_seed: bool = False,
    ) -> None:
        self.vec, self.name, self.rows, self.device = vec, name, int(vec.num_envs), device
        self._mode = _mode(vec, name)
        self.autoreset_steps = self._mode is AutoresetMode.NEXT_STEP
        self._sight = ObservationEncoder(vec.single_observation_space, name)
        self.actions = actions_from_space(vec.single_action_space, action_names, name)
        self._encode = action_encoder(vec.single_action_space, self.rows)
        self._keeper, self._one_seed = keeper(vec), one_seed
        self.exact = self._keeper.exact
        self._masks = masks or ActionMasks()
        self._masks.fit(self.rows, self.actions.choices, name)
        self._raw: Floats = np.zeros((self.rows, self._sight.layout.size), np.float32)
        self._last: Floats = np.zeros_like(self._raw)  # what ended rows saw last, in its first rows
        self._stages = tuple(stages)
        self.layout, self._obs = self._sight.layout, self._raw
        for stage in self._stages:
            self.layout, self._obs = stage.fit(self.layout, self.rows, self._sight)
        self._reward = np.zeros((self.rows, 1), np.float32)
        self._terminated, self._truncated, self._over, self._autoreset = (
            np.zeros(self.rows, np.bool_) for _ in range(4)
        )
        self._seed: int | None = None
        self._begun = 0  # how often episodes were begun anew because they could not be gone on with
        self._step = self._tensors()
        nobody = torch.zeros(0, dtype=torch.int64, device=device)
        self._nobody = FinalObs(nobody, self._step.obs[nobody], self._step.mask[nobody])
        self._ended = self._nobody

    def _tensors(self) -> Step:
        """The memory of this environment as tensors; on another device they are copies."""
        reward = self._reward
        parts = [self._obs, self._masks.now, reward[:, 0], reward, self._terminated, self._truncated]
        if self._mode is AutoresetMode.NEXT_STEP:
            parts.append(self._autoreset)
        return Step(*(torch.from_numpy(get_part).to(self.device) for get_part in parts))

    def reset(self, seed: int) -> MaskedObs:
        """Begin anew: the same seed gives the same episodes, and each row draws from a stream of its own."""
        self._seed, self._begun = Streams(seed).seed, 0
        for stage in self._stages:
            stage.forget()
        return self._begin(seed)

    def _begin(self, seed: int) -> MaskedObs:
        seeds = Streams(seed).numpy("environments").integers(SEED_RANGE, size=self.rows).tolist()
        seen, info = self._call("a reset", self.vec.reset, seed=seeds[0] if self._one_seed else seeds)
        self._sight.write(seen, self._raw)
        self._masks.read(info)
        self._over[:] = False
        obs = self._raw
        for stage in self._stages:
            obs = stage.begin(obs)
        return self._shown()

    def _shown(self) -> MaskedObs:
        """What all rows see while no step was made."""
        for flags in (self._terminated, self._truncated, self._autoreset):
            flags[:] = False
        self._reward[:] = 0
        self._ended = self._nobody
        if self.device != "cpu":
            self._step = self._tensors()
        return MaskedObs(self._step.obs, self._step.mask)

    def step(self, actions: Tensor) -> Step:
        """Act in every row. Where rows need a step to begin anew, those that ended before are `autoreset`."""
        wished = self._encode(actions.cpu().numpy())
        seen, reward, terminated, truncated, info = self._call("a step", self.vec.step, wished)
        self._reward[:, 0] = reward
        self._terminated[:] = terminated
        np.greater(truncated, terminated, out=self._truncated)  # where both are said, it terminated
        begins = self._pass_over() if self._mode is AutoresetMode.NEXT_STEP else self._over
        np.logical_or(self._terminated, self._truncated, out=self._over)
        self._sight.write(seen, self._raw)
        if self._raw.shape[1] <= FINITE_CHECK_LIMIT and not np.isfinite(self._raw).all():
            self._refuse_no_numbers()
        self._masks.read(info)
        rows = np.flatnonzero(self._over)
        last, mask = self._raw[:0], self._masks.now[:0]
        if len(rows) and self._mode is not AutoresetMode.NEXT_STEP:
            last, mask = self._final(rows, info)
        obs = self._raw
        for stage in self._stages:
            obs, last = stage.step(obs, begins, rows, last)
        if self.device != "cpu":
            self._step = self._tensors()
        if not len(rows):  # most steps end no episode
            self._ended = self._nobody
        elif self._mode is AutoresetMode.NEXT_STEP:
            self._ended = self._of(rows, obs[rows], self._masks.now[rows])
        else:
            self._ended = self._of(rows, last, mask)
        return self._step

    def _call(self, doing: str, do: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """What the environment gives back; what it raises is its own, not the run's."""
        try:
            return do(*given, **named)
        except TownletError:
            raise
        except Exception as error:
            raise self._failed(doing, error) from error

    def _refuse_no_numbers(self) -> None:
        """What is no number would make all weights none."""
        row, place = np.argwhere(~np.isfinite(self._raw))[0].tolist()
        found = ValueError(f"number {place} of what row {row} sees is {self._raw[row, place]}")
        raise self._failed("a step", found) from found

    def _failed(self, doing: str, error: Exception) -> EnvironmentFailed:
        what = f"{self.name} failed in {doing}: {type(error).__name__}: {error}"
        return EnvironmentFailed(what, "mend the environment")

    def _pass_over(self) -> Bools:
        """Rows that ended in the step before: nothing happened to them but their new beginning."""
        autoreset = self._autoreset
        autoreset[:] = self._over
        if autoreset.any():
            self._reward[autoreset] = 0
            self._terminated[autoreset] = False
            self._truncated[autoreset] = False
        return autoreset

    def _final(self, rows: NDArray[np.int64], info: Mapping[str, Any]) -> tuple[Floats, Bools]:
        """What ended rows saw last, [k, D] and [k, K]; afterwards they show their next episode."""
        last = self._last[: len(rows)]
        if self._mode is AutoresetMode.DISABLED:
            last[:] = self._raw[rows]
            mask = self._masks.now[rows]
            seen, begun = self._call("a reset", self.vec.reset, options={"reset_mask": self._over.copy()})
            self._sight.write(seen, self._raw)
            self._masks.read(begun, only=self._over)
            return last, mask
        final = info["final_obs"]
        if isinstance(final, np.ndarray) and final.dtype == object:
            self._sight.write_each([final[row] for row in rows], last)
        else:
            whole = np.empty_like(self._raw)
            self._sight.write(final, whole)
            last[:] = whole[rows]
        return last, self._masks.final(info, rows)

    def _of(self, rows: NDArray[np.int64], obs: Floats, mask: Bools) -> FinalObs:
        tensors = (torch.from_numpy(get_part) for get_part in (rows, obs, mask))
        return FinalObs(*(t.to(self.device) for t in tensors))

    def final_obs(self) -> FinalObs:
        """What rows that ended in the last step saw last."""
        return self._ended

    def freeze(self, on: bool = True) -> None:
        """Learn nothing more about how observations are normalised, or go on learning."""
        for stage in self._stages:
            stage.frozen = on

    def follow(self, other: GymVecEnv) -> None:
        """See as another environment of the same kind does now, and learn nothing about it here: for evaluation."""
        # One that stacks pictures itself lacks the last stage, which stacks and learns nothing.
        for mine, its in zip(self._stages, other._stages, strict=False):
            mine.follow(its)
        self.freeze()

    @property
    def scaling(self) -> Scaling | None:
        """How what is seen was brought to size; None where it is seen as it is."""
        found: Scaling | None = None
        for stage in self._stages:
            found = stage.scaling(found)
        return found

    def recall(self, state: Mapping[str, Any]) -> None:
        """See as the environment did whose `state` this is; its episodes are not gone on with."""
        stages = get_part(dict(state), "stages", "environment")
        for place, stage in enumerate(self._stages):
            stage.restore(get_part(stages, str(place), "environment"), exact=False)

    def state(self) -> Mapping[str, Any]:
        """Everything that decides what happens next, or enough to begin new episodes."""
        stages = {str(place): stage.state() for place, stage in enumerate(self._stages)}
        state: dict[str, Any] = {"rows": self.rows, "seed": self._seed, "begun": self._begun, "stages": stages}
        state["kind"] = self._kind()
        if self.exact and self._seed is not None:
            live = {"obs": self._obs, "mask": self._masks.now, "over": self._over}
            state |= {**clone_state(live), "environments": self._keeper.state()}
        return state

    def restore(self, state: Mapping[str, Any]) -> MaskedObs:
        """Go on exactly where `state` was taken, or with new episodes where that is not `exact`."""
        given = dict(state)
        if (rows := get_part(given, "rows", "environment")) != self.rows:
            raise TownletError(f"{rows} rows of {self.name} were saved, here are {self.rows}", SAME_RECIPE)
        if get_part(given, "kind", "environment") != self._kind():
            raise TownletError(f"another environment than this {self.name} was saved", SAME_RECIPE)
        seed, begun, stages = (get_part(given, name, "environment") for name in ("seed", "begun", "stages"))
        self._seed, self._begun = int(seed or 0), int(begun)
        exact = self.exact and "environments" in given
        for place, stage in enumerate(self._stages):
            stage.restore(get_part(stages, str(place), "environment"), exact=exact)
        if not exact:
            self._begun += 1
            return self._begin(Streams(self._seed).key(f"begun anew {self._begun}"))
        self._keeper.restore(given["environments"])
        for name, live in (("obs", self._obs), ("mask", self._masks.now), ("over", self._over)):
            _fill(live, get_part(given, name, "environment"), f"{self.name}: {name}")
        return self._shown()

    def _kind(self) -> str:
        """A fingerprint of what is seen and can be done: only the same can be gone on with."""
        return blake2b(f"{self.layout}{self.actions}".encode(), digest_size=8).hexdigest()

    def frames(self) -> tuple[Any, ...]:
        """The picture of every row, where the environment was made with a render mode."""
        return () if self.vec.render_mode is None else tuple(self.vec.render() or ())

    def close(self) -> None:
        """Give back processes, windows and memory."""
        self.vec.close()


def _mode(vec: VectorEnv[Any, Any, Any], name: str) -> AutoresetMode:
    try:
        return AutoresetMode(vec.metadata.get("autoreset_mode"))
    except ValueError:
        raise TownletError(
            f"the vector environment of {name} does not say how its rows begin anew", "write vectorization: sync"
        ) from None


def _fill(live: NDArray[Any], given: Any, name: str) -> None:
    saved = np.asarray(given)
    if saved.shape != live.shape or saved.dtype != live.dtype:
        was, needed = (f"{a.dtype} {list(a.shape)}" for a in (saved, live))
        raise TownletError(f"'{name}' was saved as {was}, needed is {needed}", SAME_RECIPE)
    live[...] = saved
