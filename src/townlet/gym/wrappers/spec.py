"""The wrappers a recipe may list under `gym.wrappers`, innermost first: one frozen model each, selected by `name`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from townlet.config.models import StrictModel

ActionIndex = Annotated[int, Field(ge=0)]
Frames = Annotated[int, Field(ge=1, le=1000)]
Gamma = Annotated[float, Field(gt=0, le=1)]
GAMMA = "Discount of the potential. Use the agent's, so that the optimal policy stays optimal."


class EncodeSpec(StrictModel):
    """Encode a discrete observation for networks that need more than an index."""

    name: Literal["encode"] = "encode"
    to: Literal["one_hot", "binary", "array"] = Field(
        "one_hot",
        description="one_hot: a 1 at the state's index. binary: the bits of the index, fewer inputs. array: the index "
        "as a number, which makes neighboring states similar.",
    )


class KeysSpec(StrictModel):
    """Keep some named parts of a Dict observation and drop the others."""

    name: Literal["keys"] = "keys"
    keep: tuple[str, ...] = Field(min_length=1, description="Parts to keep. Fewer make a smaller network.")


class MiniGridOneHotSpec(StrictModel):
    """MiniGrid: encode each cell of the view as one-hot object, color and state."""

    name: Literal["minigrid_one_hot"] = "minigrid_one_hot"


class RemapActionsSpec(StrictModel):
    """Offer a selection of the environment's actions, in another order."""

    name: Literal["remap_actions"] = "remap_actions"
    use: tuple[ActionIndex, ...] = Field(
        min_length=1, description="Indices of the environment's actions, in the agent's order. Leave out useless ones."
    )


class ActionMaskSpec(StrictModel):
    """Mask invalid actions, so that the agent never takes them."""

    name: Literal["action_mask"] = "action_mask"
    valid: tuple[ActionIndex, ...] | None = Field(
        None, min_length=1, description="The only valid actions; by default `action_mask` in the environment's info."
    )


class StickyActionsSpec(StrictModel):
    """Repeat the previous action at random, so that memorized action sequences fail."""

    name: Literal["sticky_actions"] = "sticky_actions"
    probability: float = Field(0.25, ge=0, lt=1, description="Raise it for more repeated actions.")


class FrameSkipSpec(StrictModel):
    """Repeat each action for several frames and sum the rewards."""

    name: Literal["frame_skip"] = "frame_skip"
    frames: Frames = Field(4, description="Frames per action. Raise it to decide less often.")
    max_frames: Frames | None = Field(
        None, description="If set, each step draws its number of frames from `frames` to `max_frames`."
    )

    @model_validator(mode="after")
    def _ascending(self) -> FrameSkipSpec:
        if self.max_frames is not None and self.max_frames < self.frames:
            raise ValueError(f"`max_frames` {self.max_frames} cannot be below `frames` {self.frames}")
        return self


class ClipRewardSpec(StrictModel):
    """Clip rewards, so that one learning rate suits games of different scores. Training only."""

    name: Literal["clip_reward"] = "clip_reward"
    limit: float = Field(1.0, gt=0, description="Largest absolute reward. Raise it to distinguish large rewards.")


class TimeLimitSpec(StrictModel):
    """Truncate episodes after a number of steps, counted at this wrapper's position."""

    name: Literal["time_limit"] = "time_limit"
    steps: Annotated[int, Field(ge=1)] = Field(description="Raise it for longer episodes.")
    training_only: bool = Field(False, description="Leave evaluation episodes as long as they are without it.")


class PixelsSpec(StrictModel):
    """Observe the rendered image."""

    name: Literal["pixels"] = "pixels"


class CartPoleShapingSpec(StrictModel):
    """CartPole: potential-based shaping that rewards a centered and upright pole. The optimal policy stays optimal."""

    name: Literal["cart_pole_shaping"] = "cart_pole_shaping"
    weight: float = Field(1.0, gt=0, description="Raise it for more guidance relative to the environment's reward.")
    gamma: Gamma = Field(0.99, description=GAMMA)


class MountainCarShapingSpec(StrictModel):
    """MountainCar: potentials of position, velocity and height, and a count bonus for rare states."""

    name: Literal["mountain_car_shaping"] = "mountain_car_shaping"
    position: float = Field(0.0, ge=0, description="Weight of being near the goal. Raise it to pull to the right.")
    velocity: float = Field(0.0, ge=0, description="Weight of speed in either direction. Raise it to swing more.")
    height: float = Field(0.0, ge=0, description="Weight of height on either side. Raise it to climb more.")
    count: float = Field(0.0, ge=0, description="The n-th visit of a state pays this / √n. Raise it to explore longer.")
    bins: int = Field(20, ge=2, le=200, description="Bins per axis that define a state. Raise it for finer states.")
    gamma: Gamma = Field(0.99, description=GAMMA)

    @model_validator(mode="after")
    def _has_a_weight(self) -> MountainCarShapingSpec:
        if not (self.position or self.velocity or self.height or self.count):
            raise ValueError("all weights are 0; set one of position, velocity, height, count")
        return self


class LunarLanderShapingSpec(StrictModel):
    """LunarLander: potential-based shaping toward the pad, slow and upright. The optimal policy stays optimal."""

    name: Literal["lunar_lander_shaping"] = "lunar_lander_shaping"
    distance: float = Field(1.0, ge=0, description="Weight of being near the pad. Raise it to fly there faster.")
    speed: float = Field(1.0, ge=0, description="Weight of being slow. Raise it for softer landings.")
    angle: float = Field(1.0, ge=0, description="Weight of being upright. Raise it for steadier flight.")
    gamma: Gamma = Field(0.99, description=GAMMA)


class PongShapingSpec(StrictModel):
    """Pong with `observation: objects`: potential-based shaping that keeps the paddle at the height of the ball."""

    name: Literal["pong_shaping"] = "pong_shaping"
    weight: float = Field(0.1, gt=0, description="Raise it for more guidance relative to the points.")
    gamma: Gamma = Field(0.99, description=GAMMA)


class VizdoomShapingSpec(StrictModel):
    """VizDoom: the potential is a weighted sum of game variables, so their changes are rewarded."""

    name: Literal["vizdoom_shaping"] = "vizdoom_shaping"
    weights: dict[str, float] = Field(
        min_length=1,
        description="Weight by game variable, such as {HEALTH: 0.01, KILLCOUNT: 1.0}. Raise one to value it more.",
    )
    gamma: Gamma = Field(0.99, description=GAMMA)


class ActionRewardSpec(StrictModel):
    """Add a reward to each action, such as a cost of acting. Training only."""

    name: Literal["action_reward"] = "action_reward"
    rewards: tuple[float, ...] = Field(
        min_length=1, description="Reward of each action, in the agent's order. Lower one to make the action rarer."
    )


class CustomSpec(StrictModel):
    """A user-defined wrapper, registered with @townlet.gym.wrapper in a file that runs only with --allow-code."""

    name: Literal["custom"] = "custom"
    wrapper: str = Field(min_length=1, max_length=80, description="The name it is registered under.")
    file: str | None = Field(
        None, description="The .py file that registers it, relative to the recipe; not needed if a program has done so."
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="Passed to it as keyword arguments.")
    training_only: bool = Field(
        False, description="Set it for wrappers that change rewards: evaluation then uses the environment's rewards."
    )


WrapperSpec = Annotated[
    EncodeSpec
    | KeysSpec
    | MiniGridOneHotSpec
    | RemapActionsSpec
    | ActionMaskSpec
    | StickyActionsSpec
    | FrameSkipSpec
    | ClipRewardSpec
    | TimeLimitSpec
    | PixelsSpec
    | CartPoleShapingSpec
    | MountainCarShapingSpec
    | LunarLanderShapingSpec
    | PongShapingSpec
    | VizdoomShapingSpec
    | ActionRewardSpec
    | CustomSpec,
    Field(discriminator="name"),
]
SHAPING = (
    ClipRewardSpec, CartPoleShapingSpec, MountainCarShapingSpec, LunarLanderShapingSpec, PongShapingSpec,
    VizdoomShapingSpec, ActionRewardSpec,
)  # fmt: skip
