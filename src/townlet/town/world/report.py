"""Tables that describe a world: its contents, and everything that changes one meter."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from townlet.errors import TownletError, did_you_mean
from townlet.town.world import icons
from townlet.town.world.load import load, shipped
from townlet.town.world.schema import Affordance, Meter, WorldSpec
from townlet.town.world.sessions import session_total
from townlet.town.world.tables import World
from townlet.town.world.text import describe


def world_list() -> Table:
    """One line per shipped world."""
    worlds = [load(name) for name in shipped()]
    rows = [[w.name, _map_size(w), w.layout.size, len(w.actions), w.spec.max_steps, w.spec.description] for w in worlds]
    return _table("Worlds", ["world", "map", "observation", "actions", "steps", "description"], rows)


def world_tables(world: World) -> RenderableType:
    """Everything in a world, as tables."""
    spec = world.spec
    meters = [
        (m.name, f"{m.start:g}", *(f"{loss:.6g}" if loss else "" for loss in (m.decay, m.move, m.wait)), m.group)
        for m in spec.meters
    ]
    links = [(m.source, m.target, f"{m.base:g} + {m.range:g} × (1 − {m.source})", "always") for m in spec.modulations]
    links += [(c.source, c.target, f"up to {c.strength:g}", f"{c.source} < {c.threshold:g}") for c in spec.cascades]
    blocks = [
        (b.name, "×".join(map(str, b.shape)), f"{b.start}–{b.slice.stop - 1}", f"{b.low:g} to {b.high:g}")
        for b in world.layout
        if b.size
    ]
    observation = f"Observation: {world.layout.size} values"
    return Group(
        Text(f"{world.name}: {describe(world)}", style="bold"),
        _overview(world),
        _table("Meters", ["meter", "start", "decay", "move", "wait", "group"], meters),
        _table("Modulations and cascades, in order", ["source", "target", "loss per step", "when"], links),
        _affordances(spec),
        _table(observation, ["block", "shape", "index", "range"], blocks),
        _rewards(world),
        *(Text(f"Note: {warning}", style="yellow") for warning in world.warnings),
    )


def meter_table(world: World, meter: str) -> RenderableType:
    """Everything that changes one meter, with amounts, prices and hours."""
    spec = world.spec
    chosen = next((m for m in spec.meters if m.name == meter), None)
    if chosen is None:
        raise TownletError(f"world '{world.name}' has no meter '{meter}'", did_you_mean(meter, world.meters))
    rows = [*_losses(spec, chosen), *_links(spec, chosen, incoming=True)]
    parts: list[RenderableType] = [
        Text(f"{meter} in {world.name}", style="bold"),
        Text(_summary(spec, chosen)),
        _table("In every step", ["cause", "change", "when"], rows),
        _table("Affordances", ["affordance", "complete use", "ticks", "price", "open"], _changes_by_use(spec, chosen)),
    ]
    if effects := list(_links(spec, chosen, incoming=False)):
        parts.append(_table("Effects on other meters", ["target", "change", "when"], effects))
    if rewards := list(_rewards_of(spec, chosen)):
        parts.append(_table("Rewards", ["reward", "rule"], rewards))
    return Group(*parts)


def _hours(affordance: Affordance) -> str:
    return "always" if affordance.hours is None else f"{affordance.hours[0]}–{affordance.hours[1]}"


def _table(title: str, columns: list[str], rows: Iterable[Iterable[object]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    return table


def _map_size(world: World) -> str:
    return "×".join(map(str, world.size)) or "none"


def _change(spec: WorldSpec, meter: str, value: float) -> str:
    """A signed change; in dollars for the currency."""
    if meter == spec.currency:
        return f"{'+' if value >= 0 else '−'}${abs(value) * spec.dollars:.4g}"
    return f"{value:+.6g}".replace("-", "−")


def _price(spec: WorldSpec, affordance: Affordance) -> str:
    """The price of a complete use, followed by that of a tick if there are several."""
    if not affordance.price:
        return "free"
    tick = affordance.price * spec.dollars
    total = f"${tick * affordance.ticks:.4g}"
    return total if affordance.ticks == 1 else f"{total} (${tick:.4g} per tick)"


def _overview(world: World) -> Table:
    spec = world.spec
    hour = f"{spec.clock.day} steps per day, starting at {spec.clock.start}"
    rows = [
        ("map", f"{_map_size(world)}, {spec.map.boundary}, layout {spec.map.layout}" if world.size else "none"),
        ("time", hour if spec.clock.temporal else "off: each use takes one step, and opening hours are ignored"),
        ("episode", f"{spec.max_steps} steps at most; lethal at 0: {', '.join(spec.lethal)}"),
        ("currency", f"{spec.currency}, 1.0 is ${spec.dollars:g}" if spec.currency else "none"),
        ("actions", ", ".join(f"{i} {name}" for i, name in enumerate(world.actions))),
        ("content", world.content_hash[:16]),
        ("interface", world.interface_hash[:16]),
    ]
    table = Table(show_header=False, box=None)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _affordances(spec: WorldSpec) -> Table:
    rows = []
    for a in spec.affordances:
        place = ",".join(map(str, a.cell)) if a.cell and spec.map.kind == "grid" and spec.map.layout == "fixed" else "–"
        changes = ", ".join(f"{m} {_change(spec, m, v)}" for m, v in session_total(a).items() if v)
        rows.append((icons.label(a.icon, a.name), a.name, place, a.ticks, _price(spec, a), _hours(a), changes))
    return _table("Affordances", ["", "name", "cell", "ticks", "price", "open", "complete use"], rows)


def _rewards(world: World) -> Table:
    rows = []
    for reward in world.spec.rewards:
        settings = reward.model_dump(exclude={"name", "weight"}, exclude_none=True)
        shown = ", ".join(f"{key} {value}" for key, value in settings.items())
        rows.append((reward.name, f"{reward.weight:g}", reward.__doc__, shown))
    return _table("Rewards", ["reward", "weight", "formula", "settings"], rows)


def _summary(spec: WorldSpec, meter: Meter) -> str:
    sentences = [f"Starts at {meter.start:g}."]
    if meter.name in spec.lethal:
        sentences.append("At 0 the agent dies.")
    if meter.name == spec.currency:
        sentences.append(f"It pays prices; 1.0 is ${spec.dollars:g}.")
    if meter.decay > 0 and meter.start > 0:
        sentences.append(f"Decay alone empties it in {meter.start / meter.decay:.0f} steps.")
    return " ".join(sentences)


def _losses(spec: WorldSpec, meter: Meter) -> Iterable[tuple[str, str, str]]:
    if meter.decay:
        yield "decay", _change(spec, meter.name, -meter.decay), "every step"
    if meter.move and spec.map.kind == "grid":
        yield "move", _change(spec, meter.name, -meter.move), "a move, even against the boundary"
    if meter.wait:
        yield "WAIT", _change(spec, meter.name, -meter.wait), "WAIT"


def _links(spec: WorldSpec, meter: Meter, incoming: bool) -> Iterable[tuple[str, str, str]]:
    """Links that end at a meter, or start from it."""
    for m in spec.modulations:
        if meter.name == (m.target if incoming else m.source):
            other = m.source if incoming else m.target
            yield f"{other} (modulation)", f"−{m.base:g} to −{m.base + m.range:g}", f"{m.source} 1 to 0"
    for c in spec.cascades:
        if meter.name == (c.target if incoming else c.source):
            other = c.source if incoming else c.target
            yield f"{other} (cascade)", f"−0 to −{c.strength:g}", f"{c.source} {c.threshold:g} to 0"


def _changes_by_use(spec: WorldSpec, meter: Meter) -> Iterable[tuple[str, str, str, str, str]]:
    """Affordances that change the meter, the largest increase first; for the currency, prices are subtracted."""
    changes = []
    for a in spec.affordances:
        change = session_total(a).get(meter.name, 0.0) - (a.price * a.ticks if meter.name == spec.currency else 0.0)
        if abs(change) > 1e-12:
            changes.append((change, a))
    for change, a in sorted(changes, key=lambda pair: -pair[0]):
        yield a.name, _change(spec, meter.name, change), str(a.ticks), _price(spec, a), _hours(a)


def _rewards_of(spec: WorldSpec, meter: Meter) -> Iterable[tuple[str, str]]:
    for reward in spec.rewards:
        if reward.name == "meter_bonus" and meter.bonus:
            b = meter.bonus
            yield reward.name, f"+{b.reward:g} above {b.above:g}, −{b.penalty:g} below {b.below:g}"
        elif reward.name == "vitality" and meter.name in (reward.meters or spec.lethal):
            yield reward.name, "a factor of the product"
        elif reward.name == "survival" and reward.baseline is None and meter.name == (reward.meter or spec.lethal[0]):
            yield reward.name, f"baseline 1/({meter.decay:g} × multiplier + {meter.move:g})"
        elif reward.name == "potential":
            yield reward.name, "counts in the mean of the active meters"
        elif reward.name == "proximity":
            yield reward.name, f"while it is the lowest and below {reward.below:g}"
