"""Construction of N rows of a Gymnasium environment as a `VecEnv`."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from townlet.config import user_code
from townlet.errors import TownletError
from townlet.gym import arguments, extras, sources
from townlet.gym.row_factory import RowFactory, action_names, construct
from townlet.gym.row_processes import RowProcesses
from townlet.gym.settings import GymSettings
from townlet.gym.sources import EnvName
from townlet.gym.vector_env import GymVecEnv
from townlet.gym.wrappers.spec import ActionMaskSpec, ClipRewardSpec, StickyActionsSpec
from townlet.gym.wrappers.transforms import FrameStack, ObservationTransform, RunningNormalize, StaticNormalize

DEFAULT_FPS: Final = 30
ATARI_SCREEN: Final = (210, 160)
USE_SEPARATE_ROWS: Final = "write vectorization: sync or async"


class RenderInfo(NamedTuple):
    """How an environment can be rendered."""

    modes: tuple[str, ...]
    fps: int


def registered_limit(id: str, settings: GymSettings) -> int | None:
    """Steps after which Gymnasium truncates episodes of `id`; None if none are registered."""
    return sources.find_spec(id, settings.source).max_episode_steps


def render_info(id: str, settings: GymSettings) -> RenderInfo:
    """Render modes and frame rate of `id`; makes one row."""
    env = row_factory(id, settings)()
    metadata = env.metadata
    env.close()
    fps = max(1, round(float(metadata.get("render_fps") or DEFAULT_FPS)))
    return RenderInfo(tuple(metadata.get("render_modes") or ()), fps)


def row_factory(id: str, settings: GymSettings, render_mode: str | None = None) -> RowFactory:
    """The factory of rows of an environment; raises TownletError if it may not be made."""
    _prepare(id, settings)
    return RowFactory(id, settings, render_mode, user_code.executed_files())


def _prepare(id: str, settings: GymSettings) -> None:
    """Execute the files of user-defined wrappers, which may register environments, and check that `id` may be made."""
    for file in settings.wrapper_files:
        user_code.execute_if_permitted(file)
    sources.require(id, settings.source)
    if not sources.is_registered_object(EnvName(settings.source or "", id)):
        arguments.require_harmless(id, settings.kwargs)


def make_vec(
    id: str, settings: GymSettings | None = None, rows: int = 1, device: str = "cpu", *, render_mode: str | None = None
) -> GymVecEnv:
    """Make N rows of the environment `id` as one batched environment with tensors on `device`.

    A rendered environment resets in a separate step, so that the last frame of an episode is visible.
    """
    settings = settings or GymSettings()
    if render_mode is not None:
        settings = settings.model_copy(update={"vectorization": "sync"})
    if rows < 1:
        raise TownletError(f"an environment cannot have {rows} rows", "give at least 1")
    factory = row_factory(id, settings, render_mode)
    vec: VectorEnv[Any, Any, Any]
    if native := _is_native(id, settings, render_mode):
        vec, names = _make_native(factory, rows), None
    else:
        vec = separate_envs = _make_rows(factory, rows)
        names = separate_envs.call("action_names")[0]
    transforms: list[ObservationTransform] = []
    if settings.normalize_obs != "none":
        transforms.append(StaticNormalize() if settings.normalize_obs == "static" else RunningNormalize())
    if settings.frame_stack > 1 and not (native and extras.is_atari(id)):  # Atari's vectorization stacks frames itself
        transforms.append(FrameStack(settings.frame_stack))
    try:
        names = names or _action_names(factory)
        return GymVecEnv(vec, id, device=device, action_names=names, mask=settings.mask, transforms=transforms)
    except TownletError:
        vec.close()
        raise


def _is_native(id: str, settings: GymSettings, render_mode: str | None) -> bool:
    """Whether the environment's vector implementation is used."""
    entry, atari = sources.find_spec(id, settings.source).vector_entry_point, extras.is_atari(id)
    if settings.vectorization == "native":
        if entry is None:
            raise TownletError(f"{id} has no native vectorization", USE_SEPARATE_ROWS)
        if settings.per_row_keys and not atari:
            what = f"{settings.per_row_keys[0]} does not work with vectorization: native"
            raise TownletError(what, USE_SEPARATE_ROWS)
        return not atari or render_mode is None  # Atari's cannot render; separate rows have the same observations
    # Atari's vectorization also skips frames, clips rewards and handles lives differently: only on request.
    return settings.vectorization == "auto" and entry is not None and not settings.per_row_keys and not atari


def without_autoreset_steps(id: str, settings: GymSettings) -> GymSettings:
    """The settings, with vectorization `sync` if `auto` would choose `native`, which has autoreset steps."""
    _prepare(id, settings)
    native = settings.vectorization == "auto" and _is_native(id, settings, None)
    return settings.model_copy(update={"vectorization": "sync"}) if native else settings


def _make_rows(factory: RowFactory, rows: int) -> SyncVectorEnv | RowProcesses:
    """Separate environments, stepped one after the other or in one process each."""
    autoreset = AutoresetMode.SAME_STEP if factory.render_mode is None else AutoresetMode.NEXT_STEP
    family = extras.family(factory.id)
    one_per_process = family is not None and family.one_per_process
    if one_per_process and factory.settings.vectorization == "sync":
        raise TownletError(f"only one {factory.id} can run per process", "write vectorization: auto or async")
    if one_per_process or factory.settings.vectorization == "async":
        if factory.settings.is_local:
            raise sources.not_importable(factory.id, "write vectorization: sync")
        factory().close()  # so that errors are raised in this process
        return construct(factory.id, lambda: RowProcesses(factory, rows, autoreset))
    vec = SyncVectorEnv([factory] * rows, copy=False, autoreset_mode=autoreset)
    if len({id(env.unwrapped) for env in vec.envs}) < rows:
        vec.close()
        what = f"{factory.id} returns the same environment each time, but every row needs a separate one"
        raise TownletError(what, "make a new environment inside the function")
    return vec


def _make_native(factory: RowFactory, rows: int) -> VectorEnv[Any, Any, Any]:
    settings = factory.settings
    if extras.is_atari(factory.id):
        kwargs = _native_atari_kwargs(factory.id, settings)
    else:
        optional = {"max_episode_steps": settings.max_episode_steps, "render_mode": factory.render_mode}
        kwargs = {**settings.kwargs, **{name: value for name, value in optional.items() if value is not None}}
    mode = gym.VectorizeMode.VECTOR_ENTRY_POINT
    return construct(factory.id, lambda: gym.make_vec(factory.spec, rows, mode, **kwargs))


def _native_atari_kwargs(id: str, settings: GymSettings) -> dict[str, Any]:
    """Arguments of Atari's vector implementation; raises for keys that it does not support."""
    if settings.observation not in ("vector", "rgb"):
        what = f"Atari's native vectorization has no observation '{settings.observation}'"
        raise TownletError(what, USE_SEPARATE_ROWS)
    height, width = settings.resize or ATARI_SCREEN
    kwargs: dict[str, Any] = {"img_height": height, "img_width": width, "grayscale": settings.grayscale}
    kwargs |= {"stack_num": settings.frame_stack, "reward_clipping": False}
    for wrapper in settings.wrappers:
        if isinstance(wrapper, ClipRewardSpec) and wrapper.limit == 1:
            kwargs["reward_clipping"] = True
        elif isinstance(wrapper, StickyActionsSpec):
            kwargs["repeat_action_probability"] = wrapper.probability
        elif not isinstance(wrapper, ActionMaskSpec):  # `ActionMasks` reads masks for all rows at once
            limit = f" with limit {wrapper.limit:g}" if isinstance(wrapper, ClipRewardSpec) else ""
            what = f"Atari's native vectorization does not support the wrapper '{wrapper.name}'{limit}"
            raise TownletError(what, USE_SEPARATE_ROWS)
    if settings.frame_skip > 1:  # 1 keeps the environment's default frame skip
        kwargs["frameskip"] = settings.frame_skip
    kwargs |= settings.kwargs
    if settings.max_episode_steps is not None:  # the argument counts frames
        spec = sources.find_spec(id, settings.source)
        skip = kwargs.get("frameskip", spec.kwargs.get("frameskip", 1))
        kwargs["max_num_frames_per_episode"] = settings.max_episode_steps * int(skip)
    return kwargs


def _action_names(factory: RowFactory) -> tuple[str, ...] | None:
    """Names of the actions, from a single environment, if it can be made."""
    if factory.spec.entry_point is None:
        return None
    try:
        env = gym.make(factory.spec, disable_env_checker=True, **factory.settings.kwargs)
    except (TypeError, ValueError, gym.error.Error):  # its vector implementation may take other kwargs
        return None
    names = action_names(env)
    env.close()
    return names
