"""What may stand in a world's YAML: one frozen model per thing, each key with its meaning."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from townlet.config.models import StrictModel
from townlet.interfaces.layout import ObservationLayout

Name = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z][A-Za-z0-9_ -]*$")]
LinkName = Annotated[str, Field(min_length=1, max_length=90)]
Share = Annotated[float, Field(ge=0, le=1)]
Change = Annotated[float, Field(ge=-1, le=1)]
Pay = Annotated[float, Field(ge=-1e6, le=1e6)]  # keeps every reward finite in float32
Age = Annotated[int, Field(ge=1, le=10_000_000)]

MAX_METERS = 31  # one bit each in a row's set of active meters
MAX_CELLS = 65536
BLOCKS = (
    "position_onehot", "position", "window", "window_typed", "map_typed",
    "meters", "affordance_here", "clock", "progress", "age",
)  # fmt: skip
PRESETS = ("full", "partial", "shuffled", "foggy")


def _by_name(value: Any) -> Any:
    """A bare name in a list stands for an entry with nothing but that name."""
    return {"name": value} if isinstance(value, str) else value


class Bonus(StrictModel):
    """What the `meter_bonus` reward pays for this meter each step."""

    above: Share = Field(0.8, description="Above this the bonus is paid. Raise it to ask for fuller meters.")
    reward: float = Field(0.0, ge=0, le=1e6, description="The bonus of a step above.")
    below: Share = Field(0.2, description="Below this the penalty is taken.")
    penalty: float = Field(0.0, ge=0, le=1e6, description="The penalty of a step below, as a positive number.")


class Meter(StrictModel):
    """One need of an agent, in [0, 1]."""

    name: Name
    start: Share = Field(1.0, description="Value at the start of an episode.")
    decay: Share = Field(0.0, description="Lost in every step, whatever the agent does. Raise it to make life harder.")
    move: Share = Field(0.0, description="Lost in addition by a move.")
    wait: Share = Field(0.0, description="Lost in addition by WAIT.")
    group: Literal["primary", "secondary", "tertiary", "resource"] = Field(
        "secondary", description="How people are shown it: what kills, what feeds it, what colours life, what pays."
    )
    bonus: Bonus | None = Field(None, description="Figures of this meter for the `meter_bonus` reward.")


class Modulation(StrictModel):
    """The target loses base + range × (1 − source) in every step."""

    name: LinkName | None = Field(None, description="Name for `extends`; by default source->target.")
    source: Name
    target: Name
    base: Share = Field(description="Loss per step while the source is full.")
    range: Share = Field(description="Further loss per step when the source is empty.")


class Cascade(StrictModel):
    """While the source is under the threshold, the target loses strength × (threshold − source) / threshold."""

    name: LinkName | None = Field(None, description="Name for `extends`; by default source->target.")
    source: Name
    target: Name
    threshold: float = Field(0.3, ge=0.001, le=1, description="The source hurts only below this.")
    strength: Share = Field(description="Loss per step when the source is empty.")


class Affordance(StrictModel):
    """A place in the town where an agent can do something."""

    name: Name
    icon: str = Field("", max_length=4, description="How it is drawn; by default its first letter.")
    cell: tuple[int, ...] | None = Field(None, description="Where it stands: x, y (and z). Not used when shuffled.")
    ticks: int = Field(1, ge=1, le=1000, description="INTERACTs that make a whole session.")
    price: Share = Field(0.0, description="Paid in the currency for each tick.")
    hours: tuple[int, int] | None = Field(None, description="[open, close), may wrap past midnight; always by default.")
    each_tick: dict[Name, Change] = Field(default_factory=dict, description="Change of meters on every tick.")
    at_end: dict[Name, Change] = Field(default_factory=dict, description="Change added on the last tick.")


class Map(StrictModel):
    """The ground of the town."""

    kind: Literal["grid", "aspatial"] = Field("grid", description="A grid, or no places at all.")
    size: tuple[Annotated[int, Field(ge=1, le=MAX_CELLS)], ...] = Field(
        (8, 8), min_length=1, max_length=3, description="Cells along x, y and z: one to three numbers."
    )
    boundary: Literal["clamp", "wrap", "bounce"] = Field("clamp", description="What a move off the edge does.")
    layout: Literal["fixed", "shuffled"] = Field("fixed", description="shuffled: new places in every episode.")
    start: Literal["random"] | tuple[int, ...] = Field("random", description="Where an agent starts: random or a cell.")
    allow_hidden_layout: bool = Field(False, description="Allow a shuffled layout that no observation shows from afar.")


class Clock(StrictModel):
    """Time of day. While temporal is false, a session is one step and hours do not matter."""

    temporal: bool = Field(False, description="Sessions take their ticks, places have hours.")
    day: int = Field(24, ge=1, le=1000, description="Steps of a day.")
    start: Literal["random"] | Annotated[int, Field(ge=0)] = Field(0, description="Hour at reset, or random.")


class ObservationBlock(StrictModel):
    """One block of the observation."""

    name: Literal[BLOCKS]  # type: ignore[valid-type]
    size: int | None = Field(None, ge=1, le=31, description="Side of a window, odd; 5 by default.")
    encoding: Literal["hour", "sincos"] | None = Field(None, description="Of the clock: hour/day, or sine and cosine.")


class Milestone(StrictModel):
    """Alive: a bonus at every n-th step of age, a big one at rarer steps; death is punished."""

    name: Literal["milestone"]
    weight: Pay = 1.0
    every: Age = Field(10, description="Age between small bonuses.")
    bonus: Pay = 0.5
    big_every: Age = Field(100, description="Age between big bonuses.")
    big_bonus: Pay = 5.0
    death: Pay = -100.0


class Survival(StrictModel):
    """At the end of an episode: age − 1/(decay × multiplier + move cost) of one meter."""

    name: Literal["survival"]
    weight: Pay = 1.0
    meter: Name | None = Field(None, description="Whose decay sets the baseline; by default the first lethal one.")


class Vitality(StrictModel):
    """The product of some meters, each step."""

    name: Literal["vitality"]
    weight: Pay = 1.0
    meters: tuple[Name, ...] | None = Field(None, min_length=1, description="By default the lethal ones.")


class Potential(StrictModel):
    """γΦ(s′) − Φ(s), Φ the mean of the active meters: shaping that keeps the best policy."""

    name: Literal["potential"]
    weight: Pay = 1.0
    gamma: float = Field(0.99, gt=0, le=1, description="Discount; must equal the agent's.")


class MeterBonus(StrictModel):
    """Dense pay for full meters (each meter's `bonus`): known to fail, kept to show why."""

    name: Literal["meter_bonus"]
    weight: Pay = 1.0


class Proximity(StrictModel):
    """Pay for standing near the cure of the lowest meter: known to fail, kept to show why."""

    name: Literal["proximity"]
    weight: Pay = 1.0
    below: Share = Field(0.5, description="Only while the lowest meter is under this.")
    scale: Pay = 0.5


Strategy = Milestone | Survival | Vitality | Potential | MeterBonus | Proximity
Reward = Annotated[
    Strategy,
    Field(discriminator="name"),
    BeforeValidator(_by_name, json_schema_input_type=str | Strategy),
]
Block = Annotated[ObservationBlock, BeforeValidator(_by_name, json_schema_input_type=str | ObservationBlock)]


class WorldSpec(StrictModel):
    """A whole world, after inheritance."""

    format: Literal[1] = 1
    description: str = Field("", max_length=400)
    max_steps: Age = Field(500, description="An episode is truncated at this age.")
    map: Map = Field(default_factory=Map)
    clock: Clock = Field(default_factory=Clock)
    meters: tuple[Meter, ...] = Field(min_length=1, max_length=MAX_METERS)
    currency: Name | None = Field(None, description="The meter that pays prices.")
    dollars: float = Field(100.0, gt=0, le=1e9, description="What a full currency meter is worth, for people.")
    lethal: tuple[Name, ...] = Field(min_length=1, description="Meters that kill at 0.")
    modulations: tuple[Modulation, ...] = Field((), max_length=64)
    cascades: tuple[Cascade, ...] = Field((), max_length=256)
    affordances: tuple[Affordance, ...] = Field(min_length=1, max_length=64)
    mask_unaffordable: bool = Field(False, description="Mask INTERACT when the price cannot be paid.")
    observation: Literal[PRESETS] | tuple[Block, ...] = Field(  # type: ignore[valid-type]
        "full", description="A preset (full, partial, shuffled, foggy) or a list of blocks."
    )
    rewards: tuple[Reward, ...] = Field((Milestone(name="milestone"),), min_length=1)


PLACE_BLOCKS: Final = ("position_onehot", "position", "window", "window_typed", "map_typed")
TIME_BLOCKS: Final = ("clock", "progress")
WINDOW_BLOCKS: Final = ("window", "window_typed")
DEFAULT_WINDOW: Final = 5

_PRESETS: Final = {
    "full": ("position_onehot", "meters", "affordance_here"),
    "partial": ("window", "position", "meters", "affordance_here"),
    "shuffled": ("position_onehot", "meters", "affordance_here", "map_typed"),
    "foggy": ("window_typed", "position", "meters", "affordance_here"),
}


def blocks(spec: WorldSpec) -> tuple[ObservationBlock, ...]:
    """The blocks in order; a preset is spelled out to fit the world's map and clock."""
    if not isinstance(spec.observation, str):
        return spec.observation
    names = _PRESETS[spec.observation] + (TIME_BLOCKS if spec.clock.temporal else ())
    if spec.map.kind == "aspatial":
        names = tuple(name for name in names if name not in PLACE_BLOCKS)
    return tuple(ObservationBlock(name=name, size=None, encoding=None) for name in names)


def window_side(spec: WorldSpec) -> int:
    """Side of the window, 0 when the observation has none."""
    sides = [block.size or DEFAULT_WINDOW for block in blocks(spec) if block.name in WINDOW_BLOCKS]
    return sides[0] if sides else 0


def clock_encoding(spec: WorldSpec) -> str:
    """How the hour is shown: "hour" or "sincos"."""
    return next((b.encoding for b in blocks(spec) if b.name == "clock" and b.encoding), "hour")


def layout(spec: WorldSpec) -> ObservationLayout:
    """Names, places, shapes and ranges of all blocks."""
    shapes = _shapes(spec)
    low = {"clock": -1.0 if clock_encoding(spec) == "sincos" else 0.0}
    grid = {"position": _size(spec)}
    return ObservationLayout.of(
        *((b.name, shapes[b.name], low.get(b.name, 0.0), 1.0, "values", grid.get(b.name, ())) for b in blocks(spec))
    )


def _size(spec: WorldSpec) -> tuple[int, ...]:
    """Cells along each axis of the map; none without a map."""
    return tuple(spec.map.size) if spec.map.kind == "grid" else ()


def _shapes(spec: WorldSpec) -> dict[str, tuple[int, ...]]:
    kinds = len(spec.affordances) + 1
    size = _size(spec)
    cells = prod(size)
    window = (window_side(spec),) * min(len(size), 2)
    return {
        "position_onehot": (cells,),
        "position": (len(size),),
        "window": window,
        "window_typed": (*window, kinds),
        "map_typed": (*reversed(size), kinds),
        "meters": (len(spec.meters),),
        "affordance_here": (kinds,),
        "clock": (2 if clock_encoding(spec) == "sincos" else 1,),
        "progress": (1,),
        "age": (1,),
    }
