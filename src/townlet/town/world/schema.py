"""The schema of world files, and the observation that a world describes."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from townlet.config.models import StrictModel
from townlet.interfaces.layout import ObservationLayout
from townlet.town.world.icons import MAX_ICON

Name = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z][A-Za-z0-9_ -]*$")]
LinkName = Annotated[str, Field(min_length=1, max_length=90)]
Share = Annotated[float, Field(ge=0, le=1)]
Change = Annotated[float, Field(ge=-1, le=1)]
RewardValue = Annotated[float, Field(ge=-1e6, le=1e6)]  # the limits keep every reward finite in float32
Age = Annotated[int, Field(ge=1, le=10_000_000)]

MAX_METERS = 31  # one bit each in a row's set of active meters
MAX_CELLS = 65536
BLOCKS = (
    "position_onehot", "position", "window", "window_typed", "map_typed",
    "meters", "affordance_here", "clock", "progress", "age",
)  # fmt: skip
MAP_BLOCKS = ("position_onehot", "position", "window", "window_typed", "map_typed")
TIME_BLOCKS = ("clock", "progress")
WINDOW_BLOCKS = ("window", "window_typed")
DEFAULT_WINDOW = 5
PRESETS = {
    "full": ("position_onehot", "meters", "affordance_here"),
    "partial": ("window", "position", "meters", "affordance_here"),
    "shuffled": ("position_onehot", "meters", "affordance_here", "map_typed"),
    "foggy": ("window_typed", "position", "meters", "affordance_here"),
}


def _by_name(value: Any) -> Any:
    """Expand a bare name in a list to an entry with only that name."""
    return {"name": value} if isinstance(value, str) else value


class Bonus(StrictModel):
    """Settings of one meter for the `meter_bonus` reward, paid every step."""

    above: Share = Field(0.8, description="The bonus is paid above this value. Raise it to pay only for fuller meters.")
    reward: float = Field(0.0, ge=0, le=1e6, description="Bonus per step.")
    below: Share = Field(0.2, description="The penalty applies below this value.")
    penalty: float = Field(0.0, ge=0, le=1e6, description="Penalty per step, as a positive number.")


class Meter(StrictModel):
    """One need of the agent, in [0, 1]."""

    name: Name
    start: Share = Field(1.0, description="Value at the start of an episode.")
    decay: Share = Field(0.0, description="Loss per step, regardless of the action. Raise it to make survival harder.")
    move: Share = Field(0.0, description="Additional loss by a move.")
    wait: Share = Field(0.0, description="Additional loss by WAIT.")
    group: Literal["primary", "secondary", "tertiary", "resource"] = Field(
        "secondary", description="Heading under which it is shown; has no effect on the rules."
    )
    bonus: Bonus | None = Field(None, description="Settings of this meter for the `meter_bonus` reward.")


class Modulation(StrictModel):
    """The target loses base + range × (1 − source) per step."""

    name: LinkName | None = Field(None, description="Name by which `extends` merges; by default source->target.")
    source: Name
    target: Name
    base: Share = Field(description="Loss per step while the source is full.")
    range: Share = Field(description="Additional loss per step when the source is empty.")


class Cascade(StrictModel):
    """While the source is below the threshold, the target loses strength × (threshold − source) / threshold."""

    name: LinkName | None = Field(None, description="Name by which `extends` merges; by default source->target.")
    source: Name
    target: Name
    threshold: float = Field(0.3, ge=0.001, le=1, description="The source has an effect only below this value.")
    strength: Share = Field(description="Loss per step when the source is empty.")


class Affordance(StrictModel):
    """A place where the agent can interact."""

    name: Name
    icon: str = Field(
        "",
        max_length=MAX_ICON,
        description="Icon: an emoji or up to 4 characters, or a drawing: 12 lines of 12 letters.",
    )
    cell: tuple[int, ...] | None = Field(None, description="Its cell: x, y (and z). Ignored in a shuffled layout.")
    ticks: int = Field(1, ge=1, le=1000, description="INTERACT steps of a complete use.")
    price: Share = Field(0.0, description="Price per tick, in the currency.")
    hours: tuple[int, int] | None = Field(
        None, description="[open, close), default always open. [18, 4] and [18, 28] mean the same: from 18:00 to 4:00."
    )
    each_tick: dict[Name, Change] = Field(default_factory=dict, description="Change of meters by every tick.")
    at_end: dict[Name, Change] = Field(default_factory=dict, description="Additional change by the last tick.")


class Map(StrictModel):
    """The map of the town."""

    kind: Literal["grid", "aspatial"] = Field("grid", description="A grid, or no map at all.")
    size: tuple[Annotated[int, Field(ge=1, le=MAX_CELLS)], ...] = Field(
        (8, 8), min_length=1, max_length=3, description="Cells along x, y and z: one to three numbers."
    )
    boundary: Literal["clamp", "wrap", "bounce"] = Field(
        "clamp", description="A move off the edge stays (clamp), enters opposite (wrap), or goes back a cell (bounce)."
    )
    layout: Literal["fixed", "shuffled"] = Field("fixed", description="shuffled: new cells in every episode.")
    start: Literal["random"] | tuple[int, ...] = Field("random", description="Start of the agent: random or a cell.")
    allow_hidden_layout: bool = Field(False, description="Allow a shuffled layout that the observation does not show.")


class Clock(StrictModel):
    """Time of day. Without `temporal`, each use takes one step and opening hours are ignored."""

    temporal: bool = Field(
        False, description="Using an affordance takes several steps, and affordances have opening hours."
    )
    day: int = Field(24, ge=1, le=1000, description="Steps per day.")
    start: Literal["random"] | Annotated[int, Field(ge=0)] = Field(
        0, description="Hour at the start of an episode, or random."
    )


class ObservationBlock(StrictModel):
    """One block of the observation."""

    name: Literal[BLOCKS]  # type: ignore[valid-type]
    size: int | None = Field(None, ge=1, le=31, description="Side of a window, an odd number; by default 5.")
    encoding: Literal["hour", "sincos"] | None = Field(
        None, description="Encoding of the clock: hour (hour / day), or sincos (its sine and cosine)."
    )


class Milestone(StrictModel):
    """A bonus every few steps, a big one less often, and a penalty for death."""

    name: Literal["milestone"]
    weight: RewardValue = 1.0
    every: Age = Field(10, description="Steps between small bonuses.")
    bonus: RewardValue = 0.5
    big_every: Age = Field(100, description="Steps between big bonuses.")
    big_bonus: RewardValue = 5.0
    death: RewardValue = -100.0
    pay_first_step: bool = Field(
        False, description="Pay at steps 1, 11, 21, … and 1, 101, … instead of 10, 20, … and 100, 200, …"
    )


class Survival(StrictModel):
    """At the end of an episode: age − baseline, by default 1/(decay × multiplier + move cost) of one meter."""

    name: Literal["survival"]
    weight: RewardValue = 1.0
    meter: Name | None = Field(
        None, description="The meter whose decay and move cost set the baseline; by default the first lethal one."
    )
    baseline: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        None,
        description="Baseline in steps, instead of the computed one. Raise it to reward only longer episodes.",
    )


class Vitality(StrictModel):
    """The product of some meters, every step."""

    name: Literal["vitality"]
    weight: RewardValue = 1.0
    meters: tuple[Name, ...] | None = Field(None, min_length=1, description="Its meters; by default the lethal ones.")


class Potential(StrictModel):
    """γΦ(s′) − Φ(s) with Φ the mean of the active meters: shaping that preserves the optimal policy."""

    name: Literal["potential"]
    weight: RewardValue = 1.0
    gamma: float = Field(0.99, gt=0, le=1, description="Discount factor; must equal the agent's.")


class MeterBonus(StrictModel):
    """A bonus for full meters (each meter's `bonus`): known to fail, kept as a lesson."""

    name: Literal["meter_bonus"]
    weight: RewardValue = 1.0


class Proximity(StrictModel):
    """A reward for being near what restores the lowest meter: known to fail, kept as a lesson."""

    name: Literal["proximity"]
    weight: RewardValue = 1.0
    below: Share = Field(0.5, description="Paid only while the lowest meter is below this value.")
    scale: RewardValue = 0.5


AnyReward = Milestone | Survival | Vitality | Potential | MeterBonus | Proximity
Reward = Annotated[
    AnyReward,
    Field(discriminator="name"),
    BeforeValidator(_by_name, json_schema_input_type=str | AnyReward),
]
Block = Annotated[ObservationBlock, BeforeValidator(_by_name, json_schema_input_type=str | ObservationBlock)]


class WorldSpec(StrictModel):
    """A complete world, after inheritance."""

    format: Literal[1] = 1
    description: str = Field("", max_length=400)
    max_steps: Age = Field(500, description="An episode is truncated after this many steps.")
    map: Map = Field(default_factory=Map)
    clock: Clock = Field(default_factory=Clock)
    meters: tuple[Meter, ...] = Field(min_length=1, max_length=MAX_METERS)
    currency: Name | None = Field(None, description="The meter from which prices are paid.")
    dollars: float = Field(100.0, gt=0, le=1e9, description="Dollars of a full currency meter, for display.")
    lethal: tuple[Name, ...] = Field(min_length=1, description="Meters that end the episode at 0.")
    modulations: tuple[Modulation, ...] = Field((), max_length=64)
    cascades: tuple[Cascade, ...] = Field((), max_length=256)
    affordances: tuple[Affordance, ...] = Field(min_length=1, max_length=64)
    mask_unaffordable: bool = Field(False, description="Also mask INTERACT where the price is not affordable.")
    observation: Literal[tuple(PRESETS)] | tuple[Block, ...] = Field(  # type: ignore[valid-type]
        "full", description="A preset (full, partial, shuffled, foggy) or a list of blocks."
    )
    rewards: tuple[Reward, ...] = Field((Milestone(name="milestone"),), min_length=1)


def blocks(spec: WorldSpec) -> tuple[ObservationBlock, ...]:
    """The blocks of the observation in order; a preset is expanded to fit the world's map and clock."""
    if not isinstance(spec.observation, str):
        return spec.observation
    names = PRESETS[spec.observation] + (TIME_BLOCKS if spec.clock.temporal else ())
    if spec.map.kind == "aspatial":
        names = tuple(name for name in names if name not in MAP_BLOCKS)
    return tuple(ObservationBlock(name=name, size=None, encoding=None) for name in names)


def window_side(spec: WorldSpec) -> int:
    """Side of the window; 0 if the observation has none."""
    return next((block.size or DEFAULT_WINDOW for block in blocks(spec) if block.name in WINDOW_BLOCKS), 0)


def clock_encoding(spec: WorldSpec) -> str:
    """How the hour is observed: "hour" or "sincos"."""
    return next((b.encoding for b in blocks(spec) if b.name == "clock" and b.encoding), "hour")


def observation_layout(spec: WorldSpec) -> ObservationLayout:
    """Names, shapes and ranges of all blocks."""
    classes, size = len(spec.affordances) + 1, tuple(spec.map.size) if spec.map.kind == "grid" else ()
    window, sincos = (window_side(spec),) * min(len(size), 2), clock_encoding(spec) == "sincos"
    shapes: dict[str, tuple[int, ...]] = {
        "position_onehot": (prod(size),),
        "position": (len(size),),
        "window": window,
        "window_typed": (*window, classes),
        "map_typed": (*reversed(size), classes),
        "meters": (len(spec.meters),),
        "affordance_here": (classes,),
        "clock": (2 if sincos else 1,),
        "progress": (1,),
        "age": (1,),
    }
    low, grid = {"clock": -1.0 if sincos else 0.0}, {"position": size}
    return ObservationLayout.of(
        *((b.name, shapes[b.name], low.get(b.name, 0.0), 1.0, "values", grid.get(b.name, ())) for b in blocks(spec))
    )
