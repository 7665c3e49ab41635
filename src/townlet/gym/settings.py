"""The keys under `gym` in a recipe, as one frozen model."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from townlet.config.models import StrictModel
from townlet.gym.wrappers.spec import SHAPING, ActionMaskSpec, CustomSpec, WrapperSpec

Side = Annotated[int, Field(ge=1, le=4096)]

GYM_ID: Final = re.compile(r"([\w.-]+/)?[\w.-]+-v\d+")
LOCAL_SOURCE: Final = "<local-"  # prefix of `source` for objects that other processes cannot import
RESERVED_KWARGS: Final = {
    "render_mode": "`townlet play`, the live page and `video` choose it",
    "max_episode_steps": "write gym.max_episode_steps instead",
}


class GymSettings(StrictModel):
    """How a Gymnasium environment is made, observed and wrapped."""

    source: str | None = Field(
        None,
        min_length=1,
        description="What defines `env`: a Python file relative to the recipe file, or a module. `env` is then a class "
        "or function in it, or an id that it registers. Runs only with --allow-code.",
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict,
        description="Passed to the environment, as by gymnasium.make: {gravity: -5.0}. Most texts need "
        "--allow-code, because they may be paths.",
    )
    vectorization: Literal["auto", "sync", "async", "native"] = Field(
        "auto",
        description="sync: step the rows one after the other. async: one process per row, for slow environments. "
        "native: the environment's own vector implementation, which is the fastest. auto: native if it has one, else "
        "sync; never native for Atari and recurrent networks; async for consoles.",
    )
    observation: Literal["vector", "rgb", "ram", "objects"] = Field(
        "vector",
        description="vector: the environment's observation. rgb: images, rendered if needed. ram: the memory of an "
        "Atari console. objects: positions of ball and paddles, for Pong and Breakout.",
    )
    grayscale: bool = Field(False, description="Convert images to gray: a third of the inputs.")
    resize: tuple[Side, Side] | None = Field(
        None, description="[height, width] of scaled images. Lower it for more speed and less detail."
    )
    frame_stack: int = Field(
        1, ge=1, le=64, description="Observations that are stacked. Raise it if a single one does not show motion."
    )
    frame_skip: int = Field(
        1,
        ge=1,
        le=1000,
        description="Frames per action, with summed rewards. Raise it to decide less often. 1 keeps the skip of Atari "
        "ids: 4 in version 5.",
    )
    normalize_obs: Literal["none", "static", "running"] = Field(
        "none",
        description="static: map bounded values to −1 … 1. running: normalize by running mean and deviation. Images "
        "and indices are not changed.",
    )
    wrappers: tuple[WrapperSpec, ...] = Field((), description="Further wrappers by `name`, innermost first.")
    max_episode_steps: int | None = Field(
        None, ge=1, description="Steps after which an episode is truncated; by default the environment's limit."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> GymSettings:
        for key in RESERVED_KWARGS.keys() & self.kwargs.keys():
            raise ValueError(f"`kwargs.{key}` cannot be set; {RESERVED_KWARGS[key]}")
        if sum(isinstance(w, ActionMaskSpec) for w in self.wrappers) > 1:
            raise ValueError("action_mask occurs twice among the wrappers; keep one")
        return self

    @property
    def mask(self) -> ActionMaskSpec | None:
        """The action mask wrapper, if any."""
        return next((w for w in self.wrappers if isinstance(w, ActionMaskSpec)), None)

    @property
    def is_local(self) -> bool:
        """Whether the environment exists only in the program that passed it to `townlet.train`."""
        return self.source is not None and self.source.startswith(LOCAL_SOURCE)

    @property
    def wrapper_files(self) -> list[str]:
        """Files of user-defined wrappers."""
        return [w.file for w in self.wrappers if isinstance(w, CustomSpec) and w.file is not None]

    @property
    def user_files(self) -> list[str]:
        """Python files of the environment and of user-defined wrappers."""
        own = [self.source] if self.source is not None and self.source.endswith(".py") else []
        return [*own, *self.wrapper_files]

    def unshaped(self) -> GymSettings:
        """The same without wrappers that change rewards, for evaluation."""
        wrappers = (w for w in self.wrappers if not isinstance(w, SHAPING) and not getattr(w, "training_only", False))
        return self.model_copy(update={"wrappers": tuple(wrappers)})

    @property
    def per_row_keys(self) -> tuple[str, ...]:
        """Keys that need separate environments, which native vectorization does not have."""
        keys = [f"wrappers ({w.name})" for w in self.wrappers if not isinstance(w, ActionMaskSpec)]
        keys += ["frame_skip"] if self.frame_skip > 1 else []
        keys += ["grayscale"] if self.grayscale else []
        keys += ["resize"] if self.resize else []
        keys += [f"observation: {self.observation}"] if self.observation != "vector" else []
        return tuple(keys)
