"""Every validation problem is reported at its line, with a fix."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from townlet.errors import ConfigError
from townlet.tasks.experiment import load_experiment
from townlet.town.world.load import from_text, load

# name: (text, replacement, part of the message); the problem is reported on the replaced line,
# or, with a fourth part, on the line that contains it.
CASES = {
    "meter twice": ("{name: joy, decay: .01}", "{name: money, decay: .01}", "'money' occurs twice in meters"),
    "affordance twice": ("{name: Job", "{name: Bed", "'Bed' occurs twice in affordances"),
    "cascade twice": (
        "  - {source: joy, target: energy, strength: .01}",
        "  - {source: joy, target: energy, strength: .01}\n  - {source: joy, target: energy, strength: .02}",
        "'joy->energy' occurs twice in cascades",
        "strength: .02",
    ),
    "reward twice": (
        "  - survival",
        "  - survival\n  - {name: milestone, bonus: 1}",
        "'milestone' occurs twice",
        "bonus: 1",
    ),
    "lethal twice": ("lethal: [energy]", "lethal: [energy, energy]", "'energy' occurs twice in lethal"),
    "unknown currency": ("currency: money", "currency: mony", "there is no meter 'mony'; did you mean 'money'?"),
    "unknown lethal": ("lethal: [energy]", "lethal: [energy, jo]", "there is no meter 'jo'; did you mean 'joy'?"),
    "unknown source": ("{source: joy, target: energy, base", "{source: yoy, target: energy, base", "no meter 'yoy'"),
    "unknown target": ("target: energy, strength", "target: enrgy, strength", "did you mean 'energy'?"),
    "unknown effect": ("at_end: {joy: -.1}", "at_end: {joi: -.1}", "did you mean 'joy'?"),
    "unknown survival meter": ("  - survival", "  - {name: survival, meter: enegy}", "did you mean 'energy'?"),
    "unknown vitality meter": ("  - survival", "  - {name: vitality, meters: [joy, mony]}", "did you mean 'money'?"),
    "vitality meter twice": (
        "  - survival",
        "  - {name: vitality, meters: [joy, joy]}",
        "'joy' occurs twice in the meters of 'vitality'",
    ),
    "cascade to itself": (
        "{source: joy, target: energy, strength",
        "{source: energy, target: energy, strength",
        "both source",
    ),
    "modulation of itself": (
        "{source: joy, target: energy, base",
        "{source: energy, target: energy, base",
        "both source",
    ),
    "cell outside": (
        "cell: [3, 2]",
        "cell: [3, 3]",
        "'Job' is outside the map at [3, 3]; use x from 0 to 3, y from 0 to 2",
    ),
    "cell negative": ("cell: [3, 2]", "cell: [-1, 2]", "outside the map"),
    "cell of other dimension": ("cell: [3, 2]", "cell: [3, 2, 0]", "3 coordinates, but the map has 2"),
    "cell taken": ("cell: [3, 2]", "cell: [0, 0]", "'Job' is on the same cell as 'Bed' ("),
    "cell missing": ("cell: [3, 2], ", "", "'Job' has no cell, but the layout is fixed", "name: Job"),
    "start outside": ("boundary: clamp", "start: [4, 0]", "the start is outside the map"),
    "too many affordances": ("size: [4, 3]", "size: [1, 1]", "2 affordances do not fit on the 1 cells"),
    "map too large": ("size: [4, 3]", "size: [300, 300]", "90000 cells; use at most 65536"),
    "waiting costlier than walking": ("wait: .001", "wait: .02", "waiting must be cheaper"),
    "waiting as costly as walking": ("wait: .001", "wait: .01", "waiting must be cheaper"),
    "no restorer": (
        "each_tick: {energy: .3}",
        "each_tick: {energy: -.3}",
        "no affordance raises it",
        "lethal: [energy]",
    ),
    "gain undone at the end": (
        "each_tick: {energy: .3}",
        "each_tick: {energy: .3}, at_end: {energy: -.3}",
        "no affordance raises it",
        "lethal: [energy]",
    ),
    "starts dead": ("{name: energy, decay", "{name: energy, start: 0, decay", "every agent starts dead"),
    "open too late": ("hours: [2, 8]", "hours: [10, 8]", "'Bed' cannot be open from 10 to 8 in a day of 10 hours"),
    "closes after the day": ("hours: [2, 8]", "hours: [2, 13]", "'Bed' cannot be open from 2 to 13"),
    "closes at 0": ("hours: [2, 8]", "hours: [2, 0]", "'Bed' cannot be open from 2 to 0"),
    "never open": ("hours: [2, 8]", "hours: [2, 2]", "'Bed' cannot be open from 2 to 2"),
    "start hour": (
        "day: 10}",
        "day: 10, start: 10}",
        "cannot start at hour 10: a day has 10 hours; use 0 to 9",
    ),
    "price without currency": (
        "currency: money",
        "dollars: 10",
        "'Bed' has a price, but the world has no currency",
        "name: Bed",
    ),
    "even window": ("{name: window, size: 3}", "{name: window, size: 4}", "use an odd size, such as 3 or 5"),
    "windows differ": ("  - meters", "  - meters\n  - {name: window_typed}", "differ in size", "window_typed"),
    "size of no window": ("  - meters", "  - {name: meters, size: 3}", "block 'meters' has no size"),
    "encoding of no clock": ("  - meters", "  - {name: meters, encoding: hour}", "block 'meters' has no encoding"),
    "clock without time": (
        "temporal: true",
        "temporal: false",
        "needs a clock, but `clock.temporal` is false",
        "  - clock",
    ),
    "window without map": (
        "  size: [4, 3]",
        "  kind: aspatial",
        "needs a map, but this world has none",
        "name: window",
    ),
    "block twice": ("  - clock", "  - {name: meters}", "block 'meters' occurs twice"),
    "meters not shown": ("  - meters\n", "", "does not show the meters", "observation:"),
    "hidden layout": (
        "boundary: clamp",
        "layout: shuffled",
        "never shows which affordance is where",
        "observation:",
    ),
    "shuffled without map": (
        "size: [4, 3]\n  boundary: clamp",
        "kind: aspatial\n  layout: shuffled",
        "no layout to shuffle",
        "layout:",
    ),
    "start cell without map": (
        "size: [4, 3]\n  boundary: clamp",
        "kind: aspatial\n  start: [0, 0]",
        "no cell to start on",
        "start:",
    ),
    "proximity without map": (
        "  size: [4, 3]",
        "  kind: aspatial",
        "'proximity' needs distances",
        "rewards:",
    ),
    "proximity on a huge map": ("  - survival", "  - proximity", "at most 4096 cells", "  - proximity"),
    "observation too large": (
        "  - meters",
        "  - meters\n  - map_typed",
        "use smaller blocks: at most 100000",
        "observation:",
    ),
    "window table too large": (
        "{name: window, size: 3}",
        "{name: window, size: 31}",
        "use a smaller map or window",
        "observation:",
    ),
    "bonus without figures": ("  - survival", "  - meter_bonus", "'meter_bonus' pays nothing"),
    "two survival baselines": (
        "  - survival",
        "  - {name: survival, meter: joy, baseline: 40}",
        "both a `meter` and a `baseline`; leave out one",
    ),
    "survival without end": (
        "  - survival",
        "  - {name: survival, meter: money}",
        "that meter has neither decay nor move cost",
    ),
    "falls too fast": ("decay: .01, move", "decay: .35, move", "even the luckiest agent is dead by step 20 of 50"),
    "too little money": ("price: .01", "price: .9", "even the luckiest agent is dead by", "name: energy"),
}

# Further replacements that a case needs.
HUGE = ("size: [4, 3]", "size: [256, 256]")
BEFORE = {
    "proximity without map": [
        ("rewards:\n  - milestone\n  - survival", "rewards: [proximity]"),
        ("{name: window, size: 3}", "age"),
    ],
    "proximity on a huge map": [HUGE],
    "observation too large": [HUGE],
    "window table too large": [HUGE],
    "too little money": [("decay: .01, move", "decay: .25, move"), ("each_tick: {money: .1}", "each_tick: {joy: .1}")],
}


@pytest.mark.parametrize("case", CASES)
def test_problem_is_reported_at_its_line(case: str, small: str) -> None:
    old, new, words, *at = CASES[case]
    text = small
    for before, after in BEFORE.get(case, []):
        text = text.replace(before, after)
    assert old in text
    place = text.index(old)
    text = text.replace(old, new, 1)
    line = text.count("\n", 0, text.index(at[0]) if at else place) + 1
    with pytest.raises(ConfigError) as caught:
        from_text(text, "my.yaml")
    matching = [m for m in caught.value.diagnostics if words in f"{m.what}; {m.fix}"]
    assert matching, str(caught.value)
    assert [(m.where.source, m.where.line) for m in matching if m.where] == [("my.yaml", line)]


def test_unchanged_small_world_is_valid(small: str) -> None:
    world = from_text(small, "my.yaml")
    assert world.name == "my"
    assert world.warnings == ()


def test_all_problems_are_reported_in_line_order(small: str) -> None:
    text = small.replace("currency: money", "currency: mony").replace("[3, 2]", "[9, 9]").replace("[2, 8]", "[2, 2]")
    with pytest.raises(ConfigError) as caught:
        from_text(text, "my.yaml")
    lines = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in lines] == ["6", "17", "18"]


def test_problem_of_an_override_names_the_command_line() -> None:
    with pytest.raises(ConfigError, match=r"command line.*Bed.*outside the map"):
        load("town", ["affordances.Bed.cell=[9, 9]"])


def test_hidden_layout_is_accepted_on_request(small: str) -> None:
    text = small.replace("boundary: clamp", "layout: shuffled\n  allow_hidden_layout: true")
    assert from_text(text).tables.shuffled == 1


def test_only_a_fixed_layout_needs_cells(small: str) -> None:
    shuffled = small.replace("boundary: clamp", "layout: shuffled").replace("cell: [3, 2], ", "")
    assert from_text(shuffled.replace("  - meters", "  - meters\n  - map_typed")).tables.shuffled == 1


def test_unsustainable_income_is_a_warning() -> None:
    (warning,) = load("town-l0").warnings
    assert "energy and health" in warning
    assert load("town").warnings == ()
    assert load("town-l0", ["affordances.Bed.price=0"]).warnings == ()


def test_unaffordable_price_is_a_warning() -> None:
    (warning,) = load("town", ["affordances.Gym.price=.3"]).warnings
    assert "'Gym' is never affordable: it costs $120 at once" in warning
    assert load("town-l3", ["affordances.Gym.price=.3"]).warnings == ()


def test_money_that_runs_out_limits_survival() -> None:
    """Bed: .5 energy for $5 and no income; $50 buy 5.0, the start gives 1.0, so .02 per step lasts 300 steps."""
    sleepy = ["meters.energy.decay=.0201", "max_steps=280"]
    assert load("town-l0", sleepy).spec.max_steps == 280
    with pytest.raises(ConfigError, match=r"the agent's money buys too little.* of 400"):
        load("town-l0", ["meters.energy.decay=.0201", "max_steps=400"])


def test_schema_and_validation_problems_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "both.yaml"
    path.write_text(
        "extends: town\n"
        "max_step: 400\n"
        "meters:\n"
        '  - {name: energy, decay: "fast"}\n'
        "affordances:\n"
        "  - {name: Gym, each_tick: {fitnes: .1}}\n"
        "rewards: [milestones]\n"
        "lethal: [energy, helth]\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert [m.where.line for m in caught.value.diagnostics if m.where] == [2, 4, 6, 7, 8]


def test_changed_map_is_reported_instead_of_inherited_cells(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text("extends: town\nmap: {size: [7, 8]}\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert {str(m.where) for m in caught.value.diagnostics} == {f"{path}:2:7"}
    path.write_text("extends: town\nmap: {size: [8, 8, 2]}\n")
    with pytest.raises(ConfigError, match="no affordance has a `cell` of 3 numbers") as caught:
        load(path)
    assert len(caught.value.diagnostics) == 1


def test_taken_cell_is_reported_where_the_affordance_was_moved(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: town\naffordances:\n  - {name: Bed, price: .02, cell: [4, 4]}\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    (problem,) = caught.value.diagnostics
    assert re.fullmatch(r"'Bed' is on the same cell as 'CoffeeShop' \(town\.yaml:\d+\)", problem.what)
    assert str(problem.where) == f"{path}:3:29"
    with pytest.raises(ConfigError, match=r"^command line: .*: 'Bed' is .* 'CoffeeShop' \(town\.yaml:\d+\)"):
        load("town", ["affordances.Bed.cell=[4, 4]"])
    with pytest.raises(ConfigError, match=r"^command line: .*: 'Gym' is on the same cell as 'Bed' \(mine\.yaml:3\)"):
        load(path, ["affordances.Gym.cell=[4, 4]", "affordances.CoffeeShop.cell=[0, 0]"])


def test_misspelled_meter_of_a_child_is_refused_and_an_unused_one_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "typo.yaml"
    path.write_text("extends: town\nmeters: [{name: enrgy, decay: .01}]\n")
    with pytest.raises(ConfigError, match=r"typo\.yaml:2:11: .*'enrgy'.*; did you mean 'energy'"):
        load(path)
    path.write_text("extends: town\nmeters: [{name: thirst, decay: .01}]\n")
    assert load(path).warnings == ("nothing raises the meter 'thirst', and it affects nothing else",)
    assert load_experiment(f"{path}:dqn").notes[-1].startswith("World typo: nothing raises the meter 'thirst'")


def test_misspelled_affordance_of_a_child_suggests_the_right_name(tmp_path: Path) -> None:
    path = tmp_path / "typo.yaml"
    path.write_text("extends: town\naffordances: [{name: Bedd, price: .03}]\n")
    with pytest.raises(ConfigError, match="did you mean 'Bed'"):
        load(path)


def test_every_lethal_meter_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"WAIT costs 0\.01 of 'energy' and a move 0\.005: waiting must be cheaper"):
        load("town", ["meters.energy.wait=.01", "meters.health.move=.02"])


@pytest.mark.parametrize("override", ["extends=town-l3", "remove=[Bed]"])
def test_inheritance_cannot_be_an_override(override: str) -> None:
    with pytest.raises(ConfigError, match="allowed only in a file"):
        load("town", [override])


def test_hours_after_midnight_count_on() -> None:
    tables = [load("town-l3", [f"affordances.Bar.hours={hours}"]).tables for hours in ("[18, 28]", "[18, 4]")]
    assert np.array_equal(tables[0].open_at, tables[1].open_at)
    bar = load("town-l3").affordances.index("Bar")
    assert np.flatnonzero(tables[0].open_at[bar]).tolist() == [0, 1, 2, 3, *range(18, 24)]
    assert load("town-l3", ["affordances.Bar.hours=[6, 30]"]).tables.open_at[bar].all()
