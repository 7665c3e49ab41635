"""The wrappers a recipe may name: one frozen model each, chosen by `name`. The first is the innermost."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from townlet.config.models import StrictModel

Whole = Annotated[int, Field(ge=0)]
Frames = Annotated[int, Field(ge=1, le=1000)]
Gamma = Annotated[float, Field(gt=0, le=1)]
GAMMA = "Discount of the potential: the agent's own, so that what is best stays best."


class EncodeSpec(StrictModel):
    """A state's number in another form, for networks that want more than an index."""

    name: Literal["encode"] = "encode"
    to: Literal["one_hot", "binary", "array"] = Field(
        "one_hot",
        description="one_hot: a 1 at the state's place. binary: the number's bits, fewer inputs. array: the number as "
        "it is, which says that neighbours are alike.",
    )


class KeysSpec(StrictModel):
    """Some parts of an observation that has names; the others are left out."""

    name: Literal["keys"] = "keys"
    keep: tuple[str, ...] = Field(min_length=1, description="Names of the parts to keep. Fewer make a smaller network.")


class MiniGridOneHotSpec(StrictModel):
    """MiniGrid: what lies in each cell of the view as ones at the places of its kind, colour and state."""

    name: Literal["cells"] = "cells"


class RemapActionsSpec(StrictModel):
    """Fewer or other actions: what the agent calls 0, 1, … is what the environment calls `use`."""

    name: Literal["actions"] = "actions"
    use: tuple[Whole, ...] = Field(
        min_length=1, description="The environment's actions, in the agent's order. Leave useless ones out."
    )


class ActionMaskSpec(StrictModel):
    """Which actions make sense, so that an agent need not find out."""

    name: Literal["action_mask"] = "action_mask"
    valid: tuple[Whole, ...] | None = Field(
        None, min_length=1, description="The only actions that ever make sense; left out, the environment's info says."
    )


class StickyActionsSpec(StrictModel):
    """Now and then the last action is done again whatever was asked for: a world that cannot be learned by heart."""

    name: Literal["sticky_actions"] = "sticky_actions"
    probability: float = Field(0.25, ge=0, lt=1, description="Raise it and plans by heart fail more often.")


class FrameSkipSpec(StrictModel):
    """An action is done several times in a row, and its rewards are added up."""

    name: Literal["frame_skip"] = "frame_skip"
    frames: Frames = Field(4, description="Times an action is done. Raise it to decide less often.")
    most: Frames | None = Field(
        None, description="With it each step draws a number of times from `frames` to this, so that time is uneven."
    )

    @model_validator(mode="after")
    def _ascending(self) -> FrameSkipSpec:
        if self.most is not None and self.most < self.frames:
            raise ValueError(f"`most` {self.most} cannot be below `frames` {self.frames}")
        return self


class ClipRewardSpec(StrictModel):
    """Rewards cut off on both sides, so that one learning rate suits games that pay differently. Training only."""

    name: Literal["clip_reward"] = "clip_reward"
    limit: float = Field(1.0, gt=0, description="No reward is farther from 0. Raise it to tell large rewards apart.")


class TimeLimitSpec(StrictModel):
    """Episodes are cut off after so many steps, counted where this stands among the wrappers."""

    name: Literal["time_limit"] = "time_limit"
    steps: Annotated[int, Field(ge=1)] = Field(description="Raise it for longer episodes.")


class PixelsSpec(StrictModel):
    """The rendered picture instead of the observation."""

    name: Literal["pixels"] = "pixels"


class CartPoleShapingSpec(StrictModel):
    """CartPole: a potential that is higher in the middle and upright. What is best stays best."""

    name: Literal["cart_pole_shaping"] = "cart_pole_shaping"
    weight: float = Field(1.0, gt=0, description="Raise it for more guidance beside the environment's reward.")
    gamma: Gamma = Field(0.99, description=GAMMA)


class MountainCarShapingSpec(StrictModel):
    """MountainCar: potentials of where the car is and how fast, and a bonus for states seldom seen."""

    name: Literal["mountain_car_shaping"] = "mountain_car_shaping"
    position: float = Field(0.0, ge=0, description="Weight of being near the goal. Raise it to be drawn to the right.")
    velocity: float = Field(0.0, ge=0, description="Weight of speed either way. Raise it to swing more.")
    height: float = Field(0.0, ge=0, description="Weight of height on either side. Raise it to climb more.")
    count: float = Field(
        0.0, ge=0, description="A state seen n times pays this / √n, which fades. Raise it to look around longer."
    )
    bins: int = Field(20, ge=2, le=200, description="Cells each way that count as one state. Raise it to tell finer.")
    gamma: Gamma = Field(0.99, description=GAMMA)

    @model_validator(mode="after")
    def _says_something(self) -> MountainCarShapingSpec:
        if not (self.position or self.velocity or self.height or self.count):
            raise ValueError("nothing is shaped; give one of position, velocity, height, count")
        return self


class LunarLanderShapingSpec(StrictModel):
    """LunarLander: a potential that is higher near the pad, slow and upright. What is best stays best."""

    name: Literal["lunar_lander_shaping"] = "lunar_lander_shaping"
    distance: float = Field(1.0, ge=0, description="Weight of being near the pad. Raise it to hurry there.")
    speed: float = Field(1.0, ge=0, description="Weight of being slow. Raise it for softer landings.")
    angle: float = Field(1.0, ge=0, description="Weight of being upright. Raise it for steadier flight.")
    gamma: Gamma = Field(0.99, description=GAMMA)


class CustomSpec(StrictModel):
    """A wrapper of one's own, registered by @townlet.gym.wrapper in a file that runs only with --allow-code."""

    name: Literal["own"] = "own"
    wrapper: str = Field(min_length=1, max_length=80, description="The name it was registered by.")
    file: str | None = Field(
        None, description="The .py file that registers it, as seen from the recipe; left out, a program has done so."
    )
    settings: dict[str, Any] = Field(default_factory=dict, description="Handed to it as keywords.")
    training_only: bool = Field(
        False, description="For one that changes rewards: evaluations are then paid by the environment itself."
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
    | CustomSpec,
    Field(discriminator="name"),
]
SHAPING = (ClipRewardSpec, CartPoleShapingSpec, MountainCarShapingSpec, LunarLanderShapingSpec)
