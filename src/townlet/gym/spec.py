"""What a recipe says of a Gymnasium environment: one frozen model, each key with its meaning."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from townlet.config.models import StrictModel
from townlet.gym.wrappers.spec import SHAPING, ActionMaskSpec, CustomSpec, WrapperSpec

Side = Annotated[int, Field(ge=1, le=4096)]

KWARGS: Final = {
    "render_mode": "who looks chooses it: `townlet play`, the live page, `video`",
    "max_episode_steps": "write it beside kwargs",
}


class EnvSpec(StrictModel):
    """How a Gymnasium environment is made, what of it is seen, and what stands between it and the agent."""

    kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Handed to the environment itself, as to gymnasium.make: {gravity: -5.0}."
    )
    vectorization: Literal["auto", "sync", "async", "native"] = Field(
        "auto",
        description="sync: rows one after the other. async: a process for each row, for environments that are slow by "
        "themselves. native: the environment's own way to step all rows at once, the fastest, where it has one. auto: "
        "native where it is possible, else sync; sync also where the network remembers.",
    )
    observation: Literal["vector", "rgb", "ram", "objects"] = Field(
        "vector",
        description="vector: what the environment gives. rgb: pictures, rendered where it does not give them itself. "
        "ram: the memory of an Atari console. objects: where ball and paddles are, for Pong and Breakout.",
    )
    grayscale: bool = Field(False, description="Pictures without colour: a third of the numbers.")
    resize: tuple[Side, Side] | None = Field(
        None, description="[height, width] that pictures are scaled to. Lower it for faster and coarser sight."
    )
    frame_stack: int = Field(
        1, ge=1, le=64, description="The last observations shown together. Raise it where one does not show motion."
    )
    frame_skip: int = Field(
        1,
        ge=1,
        le=1000,
        description="Times each action is done, its rewards added up. Raise it to decide less often. 1 leaves Atari "
        "games their own: 4 for the ids of version 5.",
    )
    normalize_obs: Literal["none", "static", "running"] = Field(
        "none",
        description="static: each number from its bounds to −1 … 1, where it has bounds. running: centred and scaled "
        "by all that was seen so far. Pictures and indices stay as they are.",
    )
    wrappers: tuple[WrapperSpec, ...] = Field((), description="What else stands between, by `name`, innermost first.")
    max_episode_steps: int | None = Field(
        None, ge=1, description="Steps after which an episode is cut off; left out, the environment's own limit."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> EnvSpec:
        for key in {"render_mode", "max_episode_steps"} & self.kwargs.keys():
            raise ValueError(f"`kwargs.{key}` is not the environment's to know; {KWARGS[key]}")
        if sum(isinstance(w, ActionMaskSpec) for w in self.wrappers) > 1:
            raise ValueError("action_mask stands twice among the wrappers; one says which actions make sense")
        return self

    @property
    def mask(self) -> ActionMaskSpec | None:
        """Where the mask comes from, if anything says so."""
        return next((w for w in self.wrappers if isinstance(w, ActionMaskSpec)), None)

    @property
    def user_files(self) -> list[str]:
        """The files of wrappers of one's own."""
        return [
            wrapper.file for wrapper in self.wrappers if isinstance(wrapper, CustomSpec) and wrapper.file is not None
        ]

    def unshaped(self) -> EnvSpec:
        """The same without wrappers that change rewards: what an agent is measured by."""
        kept = (w for w in self.wrappers if not isinstance(w, SHAPING) and not getattr(w, "training_only", False))
        return self.model_copy(update={"wrappers": tuple(kept)})

    @property
    def of_single(self) -> tuple[str, ...]:
        """Keys whose work is done row by row, which an environment's own vectorization cannot do."""
        keys = [f"wrappers ({w.name})" for w in self.wrappers if not isinstance(w, ActionMaskSpec)]
        keys += ["frame_skip"] if self.frame_skip > 1 else []
        keys += ["grayscale"] if self.grayscale else []
        keys += ["resize"] if self.resize else []
        keys += [f"observation: {self.observation}"] if self.observation != "vector" else []
        return tuple(keys)
