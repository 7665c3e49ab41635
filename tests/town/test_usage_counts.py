"""Usage counts agree with the slow reference; lifetime totals are reported when episodes end."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from reference import Town as Slow
from reference import shipped_document
from townlet.errors import TownletError
from townlet.jit import jit_if_available
from townlet.town.engines.engine import make_engine
from townlet.town.env import Town
from townlet.town.state import to_numpy
from townlet.town.usage_counts import LifetimeStats, UsageCounter, UsageCounts, workplaces
from townlet.town.world.load import load

KINDS = ("numba", "torch")
CASES = [*((world, "numba") for world in ("town", "town-l3", "town-shuffled", "town-aspatial")), ("town-l3", "torch")]
INTERACT, WAIT = 4, 5
BED, MEAL, FAST_FOOD, JOB, BAR = 0, 3, 4, 5, 8
BED_CELL, MEAL_CELL, JOB_CELL, BAR_CELL = 9, 25, 54, 7


def act(*actions: int) -> torch.Tensor:
    return torch.tensor(actions)


class Witness:
    """What each row does, predicted by the reference before the step."""

    def __init__(self, town: Town, doc: dict[str, Any]) -> None:
        self.town = town
        self.slow = [Slow(doc, hour=0) for _ in range(town.rows)]
        self.last = [-1] * town.rows
        self.uses: Counter[int] = Counter()
        self.transitions: Counter[tuple[int, int]] = Counter()

    def update(self, actions: torch.Tensor) -> None:
        state = self.town.engine.state()
        for row, slow in enumerate(self.slow):
            slow.cell, slow.hour = int(state["cell"][row]), int(state["hour"][row])
            slow.using = int(state["using"][row])
            slow.meters = [float(v) for v in state["meters"][row]]
            slow.layout = state["cell_of"][row if len(state["cell_of"]) > 1 else 0].tolist()
            if state["age"][row] == 0:
                self.last[row] = -1
            kind, what, _ = slow.actions[int(actions[row])]
            place = slow.here if slow.grid is not None else what
            if kind == "interact" and place != slow.none and slow.open(place) and slow.can_pay(place):
                self.uses[place] += 1
                if slow.using != place:
                    if self.last[row] >= 0:
                        self.transitions[self.last[row], place] += 1
                    self.last[row] = place


class SlowCounter:
    """The same counts in plain NumPy, one line each."""

    def __init__(self, town: Town) -> None:
        self.engine, self.none = town.engine, len(town.world.affordances)
        self.last = np.full(town.rows, self.none)
        self.under_way = self.last.copy()
        self.steps = 0
        self.uses = np.zeros(self.none + 1, np.int64)
        self.transitions = np.zeros((self.none + 1, self.none), np.int64)
        self.cells = np.zeros(town.world.tables.next_cell.shape[1], np.int64)
        self.meters = np.zeros(len(town.world.meters))

    def update(self) -> None:
        now = {name: to_numpy(values) for name, values in self.engine.peek("cell", "meters").items()}
        used = self.engine.used
        over = np.asarray(self.engine.terminated | self.engine.truncated)
        place = used >> 1
        began = np.flatnonzero((place != self.under_way) & (place < self.none))
        self.steps += len(self.last)
        np.add.at(self.uses, place, 1)
        np.add.at(self.cells, now["cell"], 1)
        np.add.at(self.transitions, (self.last[began], place[began]), 1)
        self.meters += now["meters"].sum(axis=0, dtype=np.float64)
        self.last[began] = place[began]
        self.under_way = np.where(used & 1, self.none, place)
        self.last[over] = self.under_way[over] = self.none

    def counts(self) -> UsageCounts:
        means = self.meters / self.steps
        return UsageCounts(self.steps, self.uses[:-1], self.transitions[:-1], self.cells, means)


@pytest.mark.parametrize(("world", "kind"), CASES)
def test_counter_equals_a_slow_one_bit_for_bit(world: str, kind: str) -> None:
    """Even if episodes end."""
    town = Town(load(world, ["max_steps=30"]), 24, engine=kind)
    town.reset(3)
    quick, slow = UsageCounter(town), SlowCounter(town)
    chance, mask = torch.Generator().manual_seed(4), torch.as_tensor(town.engine.mask)
    for _ in range(100):
        mask = town.step(torch.multinomial(mask.float(), 1, generator=chance).squeeze(1)).mask
        quick.update()
        slow.update()
    counts = quick.flush()
    for found, expected in zip(counts, slow.counts(), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert counts.transitions.sum() > 10, "the comparison must include transitions"


def test_counts_are_equal_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    town = placed("town-l3", [MEAL_CELL, BED_CELL, 27])
    quick = UsageCounter(town)
    monkeypatch.setattr("townlet.jit.find_spec", lambda name: None)
    jit_if_available.cache_clear()
    try:
        plain = UsageCounter(town)
    finally:
        jit_if_available.cache_clear()
    for _ in range(3):
        town.step(act(INTERACT, INTERACT, WAIT))
        quick.update()
        plain.update()
    for found, expected in zip(plain.flush(), quick.flush(), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_ended_row_without_autoreset_uses_nothing(kind: str) -> None:
    """The other rows continue."""
    engine = make_engine(load("town-aspatial", ["max_steps=1"]), 2, kind, autoreset=False)
    engine.reset(0)
    engine.track_usage(2)
    engine.step(np.array([MEAL, BED]))
    assert (engine.used >> 1).tolist() == [MEAL, BED]
    engine.reset_rows(np.array([True, False]))
    engine.step(np.array([BED, MEAL]))
    assert (engine.used >> 1).tolist() == [BED, engine.world.tables.n_affordances]


@pytest.mark.parametrize(("world", "kind"), CASES)
def test_counts_equal_those_of_the_reference(world: str, kind: str) -> None:
    compiled = load(world, ["max_steps=60"])
    town = Town(compiled, 24, engine=kind)
    town.reset(1)
    counter, witness = UsageCounter(town), Witness(town, shipped_document(world))
    chance = torch.Generator().manual_seed(2)
    cells, meters = np.zeros(compiled.tables.next_cell.shape[1], np.int64), np.zeros(len(compiled.meters))
    mask = town.engine.mask
    for _ in range(120):
        # Mostly valid actions, so that affordances are used, and some wasted ones.
        chances = torch.as_tensor(mask).float() * 5 + 1
        chances[:, compiled.tables.first_interact : compiled.tables.wait] *= 4
        actions = torch.multinomial(chances, 1, generator=chance).squeeze(1)
        witness.update(actions)
        mask = town.step(actions).mask
        counter.update()
        state = town.engine.peek()
        cells += np.bincount(state["cell"], minlength=len(cells))
        meters += state["meters"].sum(axis=0, dtype=np.float64)
    counts = counter.flush()
    assert counts.steps == 24 * 120
    assert {a: n for a, n in enumerate(counts.uses.tolist()) if n} == witness.uses
    transitions = {(int(a), int(b)): int(counts.transitions[a, b]) for a, b in np.argwhere(counts.transitions)}
    assert transitions == witness.transitions
    assert sum(witness.transitions.values()) > 50, "the comparison must include transitions"
    np.testing.assert_array_equal(counts.cells, cells)
    np.testing.assert_allclose(counts.meters, meters / counts.steps)


def placed(world: str, cells: list[int], kind: str = "numba", **fields: Any) -> Town:
    town = Town(load(world), len(cells), engine=kind)
    town.reset(0)
    state = dict(town.state()) | {"cell": np.array(cells)}
    town.restore(state | {name: np.asarray(values) for name, values in fields.items()})
    return town


@pytest.mark.parametrize("kind", KINDS)
def test_every_session_is_one_transition(kind: str) -> None:
    town = placed("town-l3", [MEAL_CELL], kind)  # two ticks per session
    counter = UsageCounter(town)
    for action in (INTERACT, INTERACT, INTERACT, WAIT, INTERACT):
        town.step(act(action))
        counter.update()
    counts = counter.flush()
    assert counts.uses[MEAL] == counts.uses.sum() == 4
    # Sessions start at steps 1, 3 and, since WAIT ends the second, 5.
    assert counts.transitions[MEAL, MEAL] == counts.transitions.sum() == 2


def test_every_use_is_a_session_without_time_of_day() -> None:
    town = placed("town", [MEAL_CELL])
    counter = UsageCounter(town)
    for _ in range(3):
        town.step(act(INTERACT))
        counter.update()
    counts = counter.flush()
    assert (counts.uses[MEAL], counts.transitions[MEAL, MEAL]) == (3, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_failed_interactions_are_not_counted(kind: str) -> None:
    """Closed, no money, no affordance, and no INTERACT."""
    meters = np.tile(load("town-l3").tables.start, (4, 1))
    meters[1, 3] = 0.0
    town = placed("town-l3", [BAR_CELL, BED_CELL, 27, BED_CELL], kind, hour=[12] * 4, meters=meters)
    counter = UsageCounter(town)
    town.step(act(INTERACT, INTERACT, INTERACT, WAIT))
    counter.update()
    assert counter.flush().uses.sum() == 0
    town = placed("town-l3", [BAR_CELL], kind, hour=[20])
    counter = UsageCounter(town)
    town.step(act(INTERACT))
    counter.update()
    assert counter.flush().uses[BAR] == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("actions", [[-1, 0, 0], [0, 99, 0], [INTERACT]])
def test_tracked_town_refuses_wrong_actions(kind: str, actions: list[int]) -> None:
    town = placed("town", [BED_CELL] * 3, kind)
    counter = UsageCounter(town)
    with pytest.raises(TownletError, match="action"):
        town.step(act(*actions))
    assert town.engine.peek()["age"].tolist() == [0, 0, 0]
    town.step(act(INTERACT, WAIT, INTERACT))
    counter.update()
    assert counter.flush().uses[BED] == 2


def test_new_episode_has_no_previous_affordance() -> None:
    town = Town(load("town-aspatial", ["max_steps=2"]), 1)
    town.reset(0)
    counter = UsageCounter(town)
    for place in (BED, MEAL, BED, BED):
        town.step(act(place))
        counter.update()
    counts = counter.flush()
    assert counts.transitions[BED, MEAL] == counts.transitions[BED, BED] == 1
    assert counts.transitions.sum() == 2, "Meal → Bed spans a death"


def test_flush_clears_the_counts() -> None:
    town = placed("town", [BED_CELL, BED_CELL, MEAL_CELL])
    counter = UsageCounter(town)
    town.step(act(INTERACT, INTERACT, INTERACT))
    counter.update()
    first, second = counter.flush(), counter.flush()
    assert (first.steps, first.uses[BED], first.uses[MEAL]) == (3, 2, 1)
    assert first.cells[BED_CELL] == 2
    assert second.steps == 0
    assert not any(np.any(counts) for counts in second)


@pytest.mark.parametrize("kind", KINDS)
def test_restored_counters_continue_exactly(kind: str) -> None:
    def play(town: Town, counter: UsageCounter, steps: int, seed: int) -> None:
        chance = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            town.step(torch.multinomial(torch.as_tensor(town.engine.mask).float(), 1, generator=chance).squeeze(1))
            counter.update()

    world = load("town-l3", ["max_steps=18"])
    one = Town(world, 16, engine=kind)
    one.reset(4)
    counter = UsageCounter(one)
    play(one, counter, 22, 1)
    town_state, counter_state = one.state(), counter.state()
    play(one, counter, 28, 2)

    two = Town(world, 16, engine=kind)
    two.restore(town_state)
    again = UsageCounter(two)
    again.restore(counter_state)
    play(two, again, 28, 2)
    for a, b in zip(counter.flush(), again.flush(), strict=True):
        np.testing.assert_array_equal(a, b)
    for rows in (12, 20):  # a run may resume with other processes, and each counts its own rows
        fewer_or_more = UsageCounter(Town(world, rows, engine=kind))
        fewer_or_more.restore(counter_state)
        same = min(rows, 16)
        np.testing.assert_array_equal(fewer_or_more.state()["last"][:same], counter_state["last"][:same])
        np.testing.assert_array_equal(fewer_or_more.state()["uses"], counter_state["uses"])
    with pytest.raises(TownletError, match="'uses' has shape"):
        UsageCounter(Town(load("town-l0"), 16, engine=kind)).restore(counter_state)


@pytest.mark.parametrize("kind", KINDS)
def test_lifetime_totals_are_returned_at_the_end(kind: str) -> None:
    # Row 0 works twice and eats, row 1 only eats; both episodes are truncated after three steps.
    town = Town(load("town-aspatial", ["max_steps=3"]), 2, engine=kind)
    town.reset(0)
    lifetimes = LifetimeStats(town)
    for actions in ((JOB, MEAL), (MEAL, MEAL)):
        town.step(act(*actions))
        assert len(lifetimes.update().rows) == 0
    town.step(act(JOB, MEAL))
    totals = lifetimes.update()
    assert totals.rows.tolist() == [0, 1]
    assert totals.uses[:, [JOB, MEAL]].tolist() == [[2, 1], [0, 3]]
    assert totals.uses.sum() == 6
    np.testing.assert_allclose(totals.earned, [2 * 0.225, 0], atol=1e-6)  # a job pays $22.50
    for actions in ((MEAL, JOB), (MEAL, MEAL), (MEAL, MEAL)):
        town.step(act(*actions))
        totals = lifetimes.update()
    assert totals.uses[:, JOB].tolist() == [0, 1], "the next episodes start from zero"
    np.testing.assert_allclose(totals.earned, [0, 0.225], atol=1e-6)


def test_lives_without_a_currency_earn_nothing() -> None:
    town = Town(load("town-l0", ["currency=null", "affordances.Bed.price=0", "max_steps=1"]), 2)
    town.reset(0)
    town.restore(dict(town.state()) | {"cell": np.array([12, 0])})
    lifetimes = LifetimeStats(town)
    town.step(act(INTERACT, INTERACT))
    totals = lifetimes.update()
    assert totals.uses.tolist() == [[1], [0]]
    assert totals.earned.tolist() == [0, 0]


def test_work_is_what_pays_by_the_tables() -> None:
    town = load("town")
    assert [name for name, pays in zip(town.affordances, workplaces(town), strict=True) if pays] == ["Job", "Labor"]
    dear = load("town", ["affordances.Job.price=0.1"])  # four ticks cost more than they bring
    assert [name for name, pays in zip(dear.affordances, workplaces(dear), strict=True) if pays] == ["Labor"]
