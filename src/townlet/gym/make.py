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
from townlet.gym.env_state import EnvSaver, PerRowSaver, VectorSaver
from townlet.gym.row_env import RowFactory, action_names, construct
from townlet.gym.spec import EnvSpec
from townlet.gym.vector_env import GymVecEnv
from townlet.gym.wrappers.actions import ActionMasks
from townlet.gym.wrappers.spec import ActionMaskSpec, ClipRewardSpec, StickyActionsSpec, WrapperSpec
from townlet.gym.wrappers.transforms import FrameStack, ObservationTransform, RunningNormalize, StaticNormalize

# A process that has run Townlet's kernels cannot fork safely. A server that has run nothing can, and loads what rows
# need once for all of them.
CONTEXT: Final = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
LOADED: Final = ["__main__", "townlet.gym.row_env"]
USUAL_RATE: Final = 30  # pictures in a second, where an environment does not say


class RenderInfo(NamedTuple):
    """How an environment can be watched."""

    modes: tuple[str, ...]  # of rendering
    fps: int


class EnvInfo(NamedTuple):
    """What Gymnasium says of an environment."""

    max_episode_steps: int | None
    reward_threshold: float | None


def env_info(id: str) -> EnvInfo:
    """What the registry knows of `id`."""
    spec = gym.spec(id)
    return EnvInfo(spec.max_episode_steps, spec.reward_threshold)


def render_info(id: str, spec: EnvSpec) -> RenderInfo:
    """How the environment `id` can be watched, asked of one row of it."""
    env = row_factory(id, spec, None)()
    told = env.metadata
    env.close()
    return RenderInfo(tuple(told.get("render_modes") or ()), max(1, round(float(told.get("render_fps") or USUAL_RATE))))


def row_factory(id: str, spec: EnvSpec, render_mode: str | None) -> RowFactory:
    """What makes a row, once all that it needs is there and allowed."""
    _run_own(spec)
    extras.require(id)
    return RowFactory(id, spec, render_mode, user_code.allowed())


def _run_own(spec: EnvSpec) -> None:
    """Run the files of wrappers of one's own, where that is allowed; they may register environments, too."""
    for file in spec.user_files:
        user_code.run(file)


def make_vec(
    id: str, spec: EnvSpec | None = None, rows: int = 1, device: str = "cpu", *, render_mode: str | None = None
) -> GymVecEnv:
    """N rows of the environment `id` as one batched environment of tensors on `device`.

    One that is rendered takes a step of its own to begin an episode anew, so that the end of the last one can be seen.
    """
    spec = spec or EnvSpec()
    if render_mode is not None:
        spec = spec.model_copy(update={"vectorization": "sync"})
    if rows < 1:
        raise TownletError(f"an environment cannot have {rows} rows", "give at least 1")
    single = row_factory(id, spec, render_mode)
    vec: VectorEnv[Any, Any, Any]
    keeper: Callable[[Any], EnvSaver]
    if native := _native(id, spec, render_mode):
        vec, names = _make_native(single, rows), None
        keeper = VectorSaver
    else:
        vec = each = _make_rows(single, rows)
        keeper = PerRowSaver
        names = each.call("action_names")[0]
    try:
        names = names or _names(single)
        stages = _stages(spec, own_stack=native and extras.is_atari(id))
        masks = ActionMasks(spec.mask)
        return GymVecEnv(
            vec, id, keeper, device=device, action_names=names, masks=masks, stages=stages, one_seed=native
        )
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


def without_autoreset_steps(id: str, spec: EnvSpec) -> EnvSpec:
    """The same, less steps in which rows only begin anew, where nobody asked for a vectorization that has them."""
    _run_own(spec)
    extras.require(id)
    owned = spec.vectorization == "auto" and _native(id, spec, None)
    return spec.model_copy(update={"vectorization": "sync"}) if owned else spec


def _make_rows(single: RowFactory, rows: int) -> SyncVectorEnv | AsyncVectorEnv:
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


def _make_native(single: RowFactory, rows: int) -> VectorEnv[Any, Any, Any]:
    """The environment's own way to step all rows at once."""
    spec = single.spec
    if extras.is_atari(single.id):
        kwargs = native_kwargs(single.id, spec)
    else:
        limit, mode = spec.max_episode_steps, single.render_mode
        said = {"max_episode_steps": limit, "render_mode": mode}
        kwargs = {**spec.kwargs, **{name: value for name, value in said.items() if value is not None}}
    way = gym.VectorizeMode.VECTOR_ENTRY_POINT
    made: VectorEnv[Any, Any, Any] = construct(single.id, lambda: gym.make_vec(single.id, rows, way, **kwargs))
    return made


def _names(single: RowFactory) -> tuple[str, ...] | None:
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


def _stages(spec: EnvSpec, *, own_stack: bool) -> tuple[ObservationTransform, ...]:
    """What works on all rows at once, in order."""
    stages: list[ObservationTransform] = []
    if spec.normalize_obs != "none":
        stages.append(StaticNormalize() if spec.normalize_obs == "static" else RunningNormalize())
    if spec.frame_stack > 1 and not own_stack:
        stages.append(FrameStack(spec.frame_stack))
    return tuple(stages)


SCREEN_SIZE: Final = (210, 160)  # of the screen
ROW_BY_ROW: Final = "write vectorization: sync or async"


def native_kwargs(id: str, spec: EnvSpec) -> dict[str, Any]:
    """What makes all rows at once; what it cannot do is the recipe's mistake."""
    if spec.observation not in ("vector", "rgb"):
        raise TownletError(f"Atari's own vectorization shows pictures, not '{spec.observation}'", ROW_BY_ROW)
    height, width = spec.resize or SCREEN_SIZE
    kwargs: dict[str, Any] = {"img_height": height, "img_width": width, "grayscale": spec.grayscale}
    kwargs |= {"stack_num": spec.frame_stack, "reward_clipping": False}
    for wrapper in spec.wrappers:
        kwargs |= _native_wrapper(wrapper)
    if spec.frame_skip > 1:  # as for rows one by one, 1 leaves the game its own
        kwargs["frameskip"] = spec.frame_skip
    kwargs |= spec.kwargs
    if spec.max_episode_steps is not None:  # it counts frames
        skip = kwargs.get("frameskip", gym.spec(id).kwargs.get("frameskip", 1))
        kwargs["max_num_frames_per_episode"] = spec.max_episode_steps * int(skip)
    return kwargs


def _native_wrapper(wrapper: WrapperSpec) -> dict[str, Any]:
    """What a wrapper does, where all rows at once can do it."""
    if isinstance(wrapper, ActionMaskSpec):  # read for all rows at once, see `envs.masks`
        return {}
    if isinstance(wrapper, ClipRewardSpec) and wrapper.limit == 1:
        return {"reward_clipping": True}
    if isinstance(wrapper, StickyActionsSpec):
        return {"repeat_action_probability": wrapper.probability}
    what = f"Atari's own vectorization has nothing for the wrapper '{wrapper.name}'"
    limit = f" with limit {wrapper.limit:g}" if isinstance(wrapper, ClipRewardSpec) else ""
    raise TownletError(what + limit, ROW_BY_ROW)
