"""Diaries count what was really done, judged by the slow reference; lives are summed until they end."""

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
from townlet.town.usage_counts import LifetimeStats, UsageCounter, UsageCounts, workplaces
from townlet.town.world.load import load

KINDS = ("numba", "torch")
INTERACT, WAIT = 4, 5
BED, MEAL, FAST_FOOD, JOB, BAR = 0, 3, 4, 5, 8
BED_CELL, MEAL_CELL, JOB_CELL, BAR_CELL = 9, 25, 54, 7

torch.set_num_threads(1)


def act(*actions: int) -> torch.Tensor:
    return torch.tensor(actions)


class Witness:
    """What each row does, told by the reference before the step."""

    def __init__(self, town: Town, doc: dict[str, Any]) -> None:
        self.town = town
        self.slow = [Slow(doc, hour=0) for _ in range(town.rows)]
        self.last = [-1] * town.rows
        self.uses: Counter[int] = Counter()
        self.ways: Counter[tuple[int, int]] = Counter()

    def watch(self, actions: torch.Tensor) -> None:
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
                        self.ways[self.last[row], place] += 1
                    self.last[row] = place


class SlowDiary:
    """The same counts in NumPy's own words, one line for each."""

    def __init__(self, town: Town, watched: int) -> None:
        self.engine, self.rows, self.none = town.engine, slice(0, watched), len(town.world.affordances)
        self.last = np.full(watched, self.none)
        self.under_way = self.last.copy()
        self.steps = 0
        self.uses = np.zeros(self.none + 1, np.int64)
        self.transitions = np.zeros((self.none + 1, self.none), np.int64)
        self.cells = np.zeros(town.world.tables.next_cell.shape[1], np.int64)
        self.meters = np.zeros(len(town.world.meters))

    def update(self) -> None:
        now, used = self.engine.peek("cell", "meters"), self.engine.used[self.rows]
        over = np.asarray(self.engine.terminated | self.engine.truncated)[self.rows]
        place = used >> 1
        began = np.flatnonzero((place != self.under_way) & (place < self.none))
        self.steps += len(self.last)
        np.add.at(self.uses, place, 1)
        np.add.at(self.cells, now["cell"][self.rows], 1)
        np.add.at(self.transitions, (self.last[began], place[began]), 1)
        self.meters += now["meters"][self.rows].sum(axis=0, dtype=np.float64)
        self.last[began] = place[began]
        self.under_way = np.where(used & 1, self.none, place)
        self.last[over] = self.under_way[over] = self.none

    def page(self) -> UsageCounts:
        means = self.meters / self.steps
        return UsageCounts(self.steps, self.uses[:-1], self.transitions[:-1], self.cells, means)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", ["town", "town-l3", "town-shuffled", "town-aspatial"])
def test_diary_is_to_the_bit_what_a_slow_one_counts(world: str, kind: str) -> None:
    """Also when only some rows are watched, somebody else watches more, and lives end all the time."""
    town = Town(load(world, ["max_steps=30"]), 24, engine=kind)
    town.reset(3)
    quick, slow = UsageCounter(town, 17), SlowDiary(town, 17)
    chance, mask = torch.Generator().manual_seed(4), torch.as_tensor(town.engine.mask)
    for count in range(100):
        if count == 40:
            town.track_usage(20)
        mask = town.step(torch.multinomial(mask.float(), 1, generator=chance).squeeze(1)).mask
        quick.update()
        slow.update()
    page = quick.flush()
    for found, expected in zip(page, slow.page(), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert page.transitions.sum() > 10, "transitions must be among what is compared"


def test_without_numba_the_same_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_who_is_dead_and_stays_so_uses_nothing(kind: str) -> None:
    """An engine that does not begin anew by itself goes on with the others."""
    engine = make_engine(load("town-aspatial", ["max_steps=1"]), 2, kind, autoreset=False)
    engine.reset(0)
    engine.track_usage(2)
    engine.step(np.array([MEAL, BED]))
    assert (engine.used >> 1).tolist() == [MEAL, BED]
    engine.reset_rows(np.array([True, False]))
    engine.step(np.array([BED, MEAL]))
    assert (engine.used >> 1).tolist() == [BED, engine.world.tables.n_affordances]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", ["town", "town-l3", "town-shuffled", "town-aspatial"])
def test_diary_tells_what_the_reference_saw(world: str, kind: str) -> None:
    compiled = load(world, ["max_steps=60"])
    town = Town(compiled, 24, engine=kind)
    town.reset(1)
    diary, witness = UsageCounter(town), Witness(town, shipped_document(world))
    chance = torch.Generator().manual_seed(2)
    cells, meters = np.zeros(compiled.tables.next_cell.shape[1], np.int64), np.zeros(len(compiled.meters))
    mask = town.engine.mask
    for _ in range(120):
        # Mostly what makes sense, so that places are used; some wasted actions too.
        chances = torch.as_tensor(mask).float() * 5 + 1
        chances[:, compiled.tables.first_interact : compiled.tables.wait] *= 4
        actions = torch.multinomial(chances, 1, generator=chance).squeeze(1)
        witness.watch(actions)
        mask = town.step(actions).mask
        diary.update()
        state = town.engine.peek()
        cells += np.bincount(state["cell"], minlength=len(cells))
        meters += state["meters"].sum(axis=0, dtype=np.float64)
    page = diary.flush()
    assert page.steps == 24 * 120
    assert {a: n for a, n in enumerate(page.uses.tolist()) if n} == witness.uses
    ways = {(int(a), int(b)): int(page.transitions[a, b]) for a, b in np.argwhere(page.transitions)}
    assert ways == witness.ways
    assert sum(witness.ways.values()) > 50, "transitions must be among what is compared"
    np.testing.assert_array_equal(page.cells, cells)
    np.testing.assert_allclose(page.meters, meters / page.steps)


def placed(world: str, cells: list[int], kind: str = "numba", **fields: Any) -> Town:
    town = Town(load(world), len(cells), engine=kind)
    town.reset(0)
    state = dict(town.state()) | {"cell": np.array(cells)}
    town.restore(state | {name: np.asarray(values) for name, values in fields.items()})
    return town


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_is_one_transition_and_the_same_again_is_another(kind: str) -> None:
    town = placed("town-l3", [MEAL_CELL], kind)  # two ticks a session
    diary = UsageCounter(town)
    for action in (INTERACT, INTERACT, INTERACT, WAIT, INTERACT):
        town.step(act(action))
        diary.update()
    page = diary.flush()
    assert page.uses[MEAL] == page.uses.sum() == 4
    # Sessions began at steps 1, 3 and, since WAIT broke the second, 5.
    assert page.transitions[MEAL, MEAL] == page.transitions.sum() == 2


def test_each_use_is_a_session_while_time_is_off() -> None:
    town = placed("town", [MEAL_CELL])
    diary = UsageCounter(town)
    for _ in range(3):
        town.step(act(INTERACT))
        diary.update()
    page = diary.flush()
    assert (page.uses[MEAL], page.transitions[MEAL, MEAL]) == (3, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_what_did_nothing_is_no_use(kind: str) -> None:
    """Closed, broke, nothing there, and only standing there."""
    meters = np.tile(load("town-l3").tables.start, (4, 1))
    meters[1, 3] = 0.0
    town = placed("town-l3", [BAR_CELL, BED_CELL, 27, BED_CELL], kind, hour=[12] * 4, meters=meters)
    diary = UsageCounter(town)
    town.step(act(INTERACT, INTERACT, INTERACT, WAIT))
    diary.update()
    assert diary.flush().uses.sum() == 0
    town = placed("town-l3", [BAR_CELL], kind, hour=[20])
    diary = UsageCounter(town)
    town.step(act(INTERACT))
    diary.update()
    assert diary.flush().uses[BAR] == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("actions", [[-1, 0, 0], [0, 99, 0], [INTERACT]])
def test_watched_town_refuses_wrong_actions_as_ever(kind: str, actions: list[int]) -> None:
    town = placed("town", [BED_CELL] * 3, kind)
    diary = UsageCounter(town)
    with pytest.raises(TownletError, match="action"):
        town.step(act(*actions))
    assert town.engine.peek()["age"].tolist() == [0, 0, 0]
    town.step(act(INTERACT, WAIT, INTERACT))
    diary.update()
    assert diary.flush().uses[BED] == 2


def test_a_new_life_has_no_place_behind_it() -> None:
    town = Town(load("town-aspatial", ["max_steps=2"]), 1)
    town.reset(0)
    diary = UsageCounter(town)
    for place in (BED, MEAL, BED, BED):
        town.step(act(place))
        diary.update()
    page = diary.flush()
    assert page.transitions[BED, MEAL] == page.transitions[BED, BED] == 1
    assert page.transitions.sum() == 2, "Meal → Bed lies across a death"


def test_take_begins_anew_and_only_watched_rows_count() -> None:
    town = placed("town", [BED_CELL, BED_CELL, MEAL_CELL])
    diary = UsageCounter(town, rows=2)
    town.step(act(INTERACT, INTERACT, INTERACT))
    diary.update()
    first, second = diary.flush(), diary.flush()
    assert (first.steps, first.uses[BED], first.uses[MEAL]) == (2, 2, 0)
    assert first.cells[BED_CELL] == 2
    assert second.steps == 0
    assert not any(np.any(counts) for counts in second)


@pytest.mark.parametrize("kind", KINDS)
def test_restored_diaries_go_on_as_if_nothing_had_happened(kind: str) -> None:
    def play(town: Town, notes: list[Any], steps: int, seed: int) -> list[Any]:
        chance = torch.Generator().manual_seed(seed)
        out = []
        for _ in range(steps):
            town.step(torch.multinomial(torch.as_tensor(town.engine.mask).float(), 1, generator=chance).squeeze(1))
            out += [counter.update() for counter in notes]
        return out

    world = load("town-l3", ["max_steps=40"])
    one = Town(world, 16, engine=kind)
    one.reset(4)
    diary, lives = UsageCounter(one, 8), LifetimeStats(one)
    play(one, [diary, lives], 50, 1)
    town_state, diary_state, lives_state = one.state(), diary.state(), lives.state()
    ahead = play(one, [diary, lives], 60, 2)

    two = Town(world, 16, engine=kind)
    two.restore(town_state)
    again, more = UsageCounter(two, 8), LifetimeStats(two)
    again.restore(diary_state)
    more.restore(lives_state)
    behind = play(two, [again, more], 60, 2)
    for a, b in zip((*diary.flush(), *flat(ahead)), (*again.flush(), *flat(behind)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert sum(len(lived.rows) for lived in ahead if lived) >= 16
    for watched in (4, 12):  # other processes may train it, and others be watched
        fewer_or_more = UsageCounter(two, watched)
        fewer_or_more.restore(diary_state)
        same = min(watched, 8)
        np.testing.assert_array_equal(fewer_or_more.state()["last"][:same], diary_state["last"][:same])
        np.testing.assert_array_equal(fewer_or_more.state()["uses"], diary_state["uses"])
    with pytest.raises(TownletError, match="'uses' has shape"):
        UsageCounter(Town(load("town-l0"), 16, engine=kind), 8).restore(diary_state)


def flat(results: list[Any]) -> list[np.ndarray]:
    return [column for lived in results if lived is not None for column in lived]


@pytest.mark.parametrize("kind", KINDS)
def test_lives_hand_out_uses_and_earnings_when_they_end(kind: str) -> None:
    # Row 0 works twice and eats, row 1 only eats; both lives are cut off after three steps.
    town = Town(load("town-aspatial", ["max_steps=3"]), 2, engine=kind)
    town.reset(0)
    lives = LifetimeStats(town)
    for actions in ((JOB, MEAL), (MEAL, MEAL)):
        town.step(act(*actions))
        assert len(lives.update().rows) == 0
    town.step(act(JOB, MEAL))
    lived = lives.update()
    assert lived.rows.tolist() == [0, 1]
    assert lived.uses[:, [JOB, MEAL]].tolist() == [[2, 1], [0, 3]]
    assert lived.uses.sum() == 6
    assert lived.works.tolist() == [2, 0]
    np.testing.assert_allclose(lived.earned, [2 * 0.225, 0], atol=1e-6)  # a job pays $22.50
    for actions in ((MEAL, JOB), (MEAL, MEAL), (MEAL, MEAL)):
        town.step(act(*actions))
        lived = lives.update()
    assert lived.works.tolist() == [0, 1], "the next lives begin from nothing"
    np.testing.assert_allclose(lived.earned, [0, 0.225], atol=1e-6)


def test_lives_without_a_currency_earn_nothing() -> None:
    town = Town(load("town-l0", ["currency=null", "affordances.Bed.price=0", "max_steps=1"]), 2)
    town.reset(0)
    town.restore(dict(town.state()) | {"cell": np.array([12, 0])})
    lives = LifetimeStats(town)
    town.step(act(INTERACT, INTERACT))
    lived = lives.update()
    assert lived.uses.tolist() == [[1], [0]]
    assert (lived.earned.tolist(), lived.works.tolist()) == ([0, 0], [0, 0])


def test_work_is_what_pays_by_the_tables() -> None:
    town = load("town")
    assert [name for name, pays in zip(town.affordances, workplaces(town), strict=True) if pays] == ["Job", "Labor"]
    dear = load("town", ["affordances.Job.price=0.1"])  # four ticks cost more than they bring
    assert [name for name, pays in zip(dear.affordances, workplaces(dear), strict=True) if pays] == ["Labor"]
