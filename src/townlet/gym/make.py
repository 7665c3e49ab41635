"""A Gymnasium environment by id, with as many rows as asked for, as a `VecEnv`."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from townlet.config import user_code
from townlet.errors import TownletError
from townlet.gym import extras
from townlet.gym.atari import native_kwargs
from townlet.gym.masks import Masks
from townlet.gym.row_env import Single, action_names, making
from townlet.gym.saving import Keeper, RowsKeeper, WholeKeeper
from townlet.gym.spec import EnvSpec
from townlet.gym.vector_env import GymVec
from townlet.gym.wrappers.normalize import Running, Static
from townlet.gym.wrappers.stack import Stack
from townlet.gym.wrappers.stage import Stage

# A process that has run Townlet's kernels cannot fork safely. A server that has run nothing can, and loads what rows
# need once for all of them.
CONTEXT: Final = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
LOADED: Final = ["__main__", "townlet.gym.row_env"]
USUAL_RATE: Final = 30  # pictures in a second, where an environment does not say


class Looks(NamedTuple):
    """How an environment can be watched."""

    modes: tuple[str, ...]  # of rendering
    rate: int  # pictures in a second


class About(NamedTuple):
    """What Gymnasium says of an environment."""

    limit: int | None  # steps after which an episode is cut short
    threshold: float | None  # mean return from which on it counts as solved


def about(id: str) -> About:
    """What the registry knows of `id`."""
    spec = gym.spec(id)
    return About(spec.max_episode_steps, spec.reward_threshold)


def looks(id: str, spec: EnvSpec) -> Looks:
    """How the environment `id` can be watched, asked of one row of it."""
    env = _single(id, spec, None)()
    told = env.metadata
    env.close()
    return Looks(tuple(told.get("render_modes") or ()), max(1, round(float(told.get("render_fps") or USUAL_RATE))))


def _single(id: str, spec: EnvSpec, render_mode: str | None) -> Single:
    """What makes a row, once all that it needs is there and allowed."""
    _run_own(spec)
    extras.ensure(id)
    return Single(id, spec, render_mode, user_code.allowed())


def _run_own(spec: EnvSpec) -> None:
    """Run the files of wrappers of one's own, where that is allowed; they may register environments, too."""
    for file in spec.own_files:
        user_code.run(file)


def make_vec(
    id: str, spec: EnvSpec | None = None, rows: int = 1, device: str = "cpu", *, render_mode: str | None = None
) -> GymVec:
    """N rows of the environment `id` as one batched environment of tensors on `device`.

    One that is rendered takes a step of its own to begin an episode anew, so that the end of the last one can be seen.
    """
    spec = spec or EnvSpec()
    if render_mode is not None:
        spec = spec.model_copy(update={"vectorization": "sync"})
    if rows < 1:
        raise TownletError(f"an environment cannot have {rows} rows", "give at least 1")
    single = _single(id, spec, render_mode)
    vec: VectorEnv[Any, Any, Any]
    keeper: Callable[[Any], Keeper]
    if native := _native(id, spec, render_mode):
        vec, names = _make_native(single, rows), None
        keeper = WholeKeeper
    else:
        vec = each = _make_rows(single, rows)
        keeper = RowsKeeper
        names = each.call("action_names")[0]
    try:
        names = names or _names(single)
        stages = _stages(spec, own_stack=native and extras.is_atari(id))
        masks = Masks(spec.mask)
        return GymVec(vec, id, keeper, device=device, action_names=names, masks=masks, stages=stages, one_seed=native)
    except TownletError:
        vec.close()
        raise


def _native(id: str, spec: EnvSpec, render_mode: str | None) -> bool:
    """Whether the environment steps all rows itself."""
    entry, atari = gym.spec(id).vector_entry_point, extras.is_atari(id)
    if spec.vectorization == "native":
        if entry is None:
            raise TownletError(f"{id} has no vectorization of its own", "write vectorization: sync or async")
        if spec.of_single and not atari:
            raise TownletError(
                f"{spec.of_single[0]} works row by row, which goes not with vectorization: native",
                "write vectorization: sync or async",
            )
        return not atari or render_mode is None  # it draws nothing: who wants to look gets rows that show the same
    # Atari's own vectorization also skips frames, clips rewards and loses lives in its own way: only when asked for.
    return spec.vectorization == "auto" and entry is not None and not spec.of_single and not atari


def without_voids(id: str, spec: EnvSpec) -> EnvSpec:
    """The same, less steps in which rows only begin anew, where nobody asked for a vectorization that has them."""
    _run_own(spec)
    extras.ensure(id)
    owned = spec.vectorization == "auto" and _native(id, spec, None)
    return spec.model_copy(update={"vectorization": "sync"}) if owned else spec


def _make_rows(single: Single, rows: int) -> SyncVectorEnv | AsyncVectorEnv:
    """Rows that are stepped one after the other, or each in a process of its own."""
    again = AutoresetMode.SAME_STEP if single.render_mode is None else AutoresetMode.NEXT_STEP
    found = extras.family(single.id)
    alone = found is not None and found.alone
    if alone and single.spec.vectorization == "sync":
        raise TownletError(f"a process holds only one {single.id}", "write vectorization: auto or async")
    if alone or single.spec.vectorization == "async":
        single().close()  # mistakes are told here, not in another process
        multiprocessing.set_forkserver_preload(LOADED)
        return AsyncVectorEnv([single] * rows, copy=False, context=CONTEXT, autoreset_mode=again)
    return SyncVectorEnv([single] * rows, copy=False, autoreset_mode=again)


def _make_native(single: Single, rows: int) -> VectorEnv[Any, Any, Any]:
    """The environment's own way to step all rows at once."""
    spec = single.spec
    if extras.is_atari(single.id):
        kwargs = native_kwargs(single.id, spec)
    else:
        limit, mode = spec.max_episode_steps, single.render_mode
        said = {"max_episode_steps": limit, "render_mode": mode}
        kwargs = {**spec.kwargs, **{name: value for name, value in said.items() if value is not None}}
    way = gym.VectorizeMode.VECTOR_ENTRY_POINT
    made: VectorEnv[Any, Any, Any] = making(single.id, lambda: gym.make_vec(single.id, rows, way, **kwargs))
    return made


def _names(single: Single) -> tuple[str, ...] | None:
    """What actions are called, asked of one row where the whole does not say."""
    if gym.spec(single.id).entry_point is None:
        return None
    try:
        env = gym.make(single.id, disable_env_checker=True, **single.spec.kwargs)
    except (TypeError, ValueError, gym.error.Error):  # it may take other kwargs than its vectorization
        return None
    names = action_names(env)
    env.close()
    return names


def _stages(spec: EnvSpec, *, own_stack: bool) -> tuple[Stage, ...]:
    """What works on all rows at once, in order."""
    stages: list[Stage] = []
    if spec.normalize_obs != "none":
        stages.append(Static() if spec.normalize_obs == "static" else Running())
    if spec.frame_stack > 1 and not own_stack:
        stages.append(Stack(spec.frame_stack))
    return tuple(stages)
