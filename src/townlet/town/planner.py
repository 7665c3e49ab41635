"""Scripted players: baselines for learning agents, and evidence that a world is survivable.

A player reads the true state of all rows of an engine and chooses one action per row. Players use the same tables as
the rules and do not depend on particular meters or affordances.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError, did_you_mean
from townlet.town.engines.engine import Engine
from townlet.town.state import to_numpy
from townlet.town.world.compile import coordinates
from townlet.town.world.tables import TOLERANCE, World

Actions = NDArray[np.int64]
Numbers = NDArray[np.float32]
Counts = NDArray[np.int64]
Fields = dict[str, NDArray[Any]]

NAMES: Final = ("random", "planner", "passive")
NEVER: Final = 1_000_000  # steps; stands for infinity

# Constants of the planner. In the shipped worlds, halving or doubling any of them changes little.
HORIZON: Final = 100.0  # steps over which the harm of an empty meter adds up
FLOOR: Final = 0.05  # softens the logarithm near an empty meter
MARGIN: Final = 0.02  # a plan that takes a lethal meter below this counts as deadly
DEADLY: Final = 1e3  # penalty of a deadly plan; more than any plan can gain


class Player(Protocol):
    """Chooses actions for all rows of a town."""

    name: str

    def act(self, engine: Engine) -> Actions:
        """One action per row [N]."""


class RandomPlayer:
    """Uniform over the valid actions."""

    name = "random"

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def act(self, engine: Engine) -> Actions:
        """One action per row [N]: the valid action with the highest random number."""
        mask = to_numpy(engine.mask)
        return np.asarray(np.where(mask, self._rng.random(mask.shape), -1.0).argmax(axis=1), np.int64)


class PassivePlayer:
    """Always waits."""

    name = "passive"

    def __init__(self, world: World) -> None:
        self._wait = len(world.actions) - 1

    def act(self, engine: Engine) -> Actions:
        return np.full(engine.rows, self._wait, np.int64)


class Plans(NamedTuple):
    """Going to each affordance and using it, for all rows; the first two are [N, A], the others [N, A, M]."""

    steps: Counts  # until the session ends; NEVER if it is impossible
    waiting: Counts  # until the affordance opens
    arrival: Numbers  # meters at the start of the session
    after: Numbers  # meters at its end


class PlannerPlayer:
    """Greedy over plans (go to an affordance, wait until it opens, use it) by gain of value per step.

    The value of a state is Σ weight × log(meter): the emptier a meter, the more it counts. A lethal meter weighs 1, the
    currency weighs 1 since it buys everything, and other meters weigh as much as they harm lethal ones when empty.
    """

    name = "planner"

    def __init__(self, world: World) -> None:
        t = world.tables
        n, last = int(t.n_affordances), len(world.actions) - 1
        self._tables, self._affordances = t, np.arange(n)
        self._wait = last
        self._moves = np.arange(t.first_interact)
        self._interact = np.full(n, last - 1) if world.size else np.arange(n)  # the action that uses each affordance
        self._weights = meter_weights(world)
        self._walk_cost = t.action_cost[self._moves[0]] if len(self._moves) else np.zeros_like(t.start)
        self._wait_cost = t.action_cost[last]
        self._tick = np.array(t.effect[0 : 2 * n : 2])
        self._finish = t.effect[1 : 2 * n : 2] - self._tick  # what the last tick adds
        one_hot = np.eye(len(t.start), dtype=np.float32)
        self._modulated = one_hot[t.modulation_target]  # [links, M]
        self._cascaded = one_hot[t.cascade_target]
        self._until_open, self._open_for = opening_hours(np.asarray(t.open_at[:n]) == 1)
        cells = coordinates(world.size) if world.size else np.zeros((t.next_cell.shape[1], 0))
        self._coordinates = cells.astype(np.int64)
        wraps = world.spec.map.boundary == "wrap"
        period = world.size if wraps else [NEVER] * len(world.size)  # moves after which each axis repeats
        self._period = np.array(period, np.int64)

    def act(self, engine: Engine) -> Actions:
        """The first action of the best plan of each row [N]."""
        s = cast(Fields, engine.peek())
        meters, t = s["meters"], self._tables
        active = ((s["active"][:, None] >> np.arange(meters.shape[1])) & 1).astype(np.float32)
        loss = self._loss(meters, s["multiplier"][:, None], active)
        cells = np.broadcast_to(s["cell_of"], (len(meters), len(self._affordances)))
        distance = self.distance(s["cell"][:, None], cells)
        plans = self._plans(s, active, loss, distance)

        value = self._value(meters, active)
        gain = (self._value(plans.after, active[:, None]) - value[:, None]) / np.maximum(plans.steps, 1)
        lowest = np.minimum(plans.arrival, plans.after)[..., t.lethal].min(axis=-1)
        gain = np.where(plans.steps < NEVER, gain, -np.inf) - np.where(lowest < MARGIN, DEADLY, 0.0)
        gain_of_waiting = self._value(np.maximum(meters - loss - self._wait_cost * active, 0), active) - value

        rows, best = np.arange(len(meters)), gain.argmax(axis=1)
        best_gain, arrived = gain[rows, best], distance[rows, best] == 0
        # Wait if no plan is better or possible; but if every plan is deadly, try the best one.
        no_good_plan = ((gain_of_waiting >= best_gain) & (best_gain > -DEADLY / 2)) | np.isinf(best_gain)
        waits = no_good_plan | (arrived & (plans.waiting[rows, best] > 0))
        action = np.where(arrived, self._interact[best], self.towards(s["cell"], cells[rows, best]))
        return np.where(waits, self._wait, action).astype(np.int64)

    def distance(self, a: NDArray[Any], b: NDArray[Any]) -> Counts:
        """Moves between cells, across the edge if that is shorter and the map wraps; 0 without a map."""
        gap = np.abs(self._coordinates[a] - self._coordinates[b])
        steps: Counts = np.minimum(gap, np.abs(self._period - gap)).sum(axis=-1)
        return steps

    def towards(self, cell: NDArray[Any], goal: NDArray[Any]) -> Actions:
        """The move that ends nearest to the goal [N]."""
        if not len(self._moves):
            return np.full(len(cell), self._wait)
        reached = self._tables.next_cell[self._moves][:, cell]
        nearest: Actions = self._moves[self.distance(reached, goal).argmin(axis=0)]
        return nearest

    def _value(self, meters: Numbers, active: Numbers) -> Numbers:
        value: Numbers = (np.log(meters + np.float32(FLOOR)) * active) @ self._weights
        return value

    def _loss(self, meters: Numbers, multiplier: Numbers, active: Numbers) -> Numbers:
        """What each meter currently loses per step to decay, modulations and cascades [N, M]."""
        t = self._tables
        modulated = t.modulation_base + t.modulation_range * (1 - meters[:, t.modulation_source])
        shortage = np.maximum(t.cascade_threshold - meters[:, t.cascade_source], 0) * active[:, t.cascade_source]
        steady = (t.decay + modulated @ self._modulated) * multiplier
        loss: Numbers = (steady + (shortage * t.cascade_slope) @ self._cascaded) * active
        return loss

    def _plans(self, s: Fields, active: Numbers, loss: Numbers, distance: Counts) -> Plans:
        """Duration and result of going to each affordance and using it."""
        t, affordances = self._tables, self._affordances
        arrival_hour = (s["hour"][:, None] + distance) % t.day
        waiting = self._until_open[affordances, arrival_hour]
        start_hour = (arrival_hour + waiting) % t.day
        walked = distance[..., None].astype(np.float32)
        waited = np.minimum(waiting, NEVER)[..., None].astype(np.float32)
        walk, wait = loss + self._walk_cost * active, loss + self._wait_cost * active
        arrival = np.maximum(s["meters"][:, None] - walked * walk[:, None] - waited * wait[:, None], 0)

        price = t.price[affordances] * active[:, t.currency, None]
        affordable = np.full(price.shape, float(NEVER))  # ticks
        np.divide(arrival[..., t.currency] + TOLERANCE, price, out=affordable, where=price > 0)
        progress = np.where(s["using"][:, None] == affordances, s["progress"][:, None], 0)
        remaining = t.ticks[affordances] - progress
        possible_ticks = np.minimum(self._open_for[affordances, start_hour], affordable.astype(np.int64))
        ticks = np.minimum(remaining, possible_ticks)

        n = ticks[..., None].astype(np.float32)
        change = n * self._tick + (ticks >= remaining)[..., None] * self._finish
        change[..., t.currency] -= ticks * price
        after = np.clip(arrival + change * active[:, None], 0, 1)
        after = np.maximum(after - n * loss[:, None], 0)
        possible = (ticks > 0) & (waiting < NEVER)
        return Plans(np.where(possible, distance + waiting + ticks, NEVER), waiting, arrival, after)


def meter_weights(world: World) -> Numbers:
    """Weights [M]: 1 for lethal meters and the currency, for the others the harm they cause."""
    t = world.tables
    fixed = np.zeros(len(world.meters), np.float32)
    fixed[t.lethal] = 1
    weights = fixed
    for _ in world.meters:  # harm passes along chains of links, one link per round
        passed = fixed.copy()
        np.add.at(passed, t.cascade_source, HORIZON * t.cascade_slope * t.cascade_threshold * weights[t.cascade_target])
        np.add.at(passed, t.modulation_source, HORIZON * t.modulation_range * weights[t.modulation_target])
        weights = np.minimum(passed, 1)
    if world.spec.currency is not None:
        weights[t.currency] = 1
    return weights


def opening_hours(is_open: NDArray[np.bool_]) -> tuple[Counts, Counts]:
    """From opening hours [A, D]: at each hour, the steps until an affordance is open, and those it stays open."""
    day = is_open.shape[1]
    ahead = is_open[:, (np.arange(day)[:, None] + np.arange(day)) % day]  # [A, D, hours ahead]
    until_open = np.where(ahead.any(axis=2), ahead.argmax(axis=2), NEVER)
    open_for = np.where(ahead.all(axis=2), NEVER, (~ahead).argmax(axis=2))
    return until_open, open_for


def make_player(name: str, world: World, rng: np.random.Generator) -> Player:
    """A scripted player by name; only the random one uses `rng`."""
    if name == "random":
        return RandomPlayer(rng)
    if name == "planner":
        return PlannerPlayer(world)
    if name == "passive":
        return PassivePlayer(world)
    raise TownletError(f"there is no player '{name}'", did_you_mean(name, NAMES))
