"""`extends`, `remove` and overrides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from townlet.errors import ConfigError
from townlet.town.world.load import from_text, load, shipped


def problems(text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        from_text(text, "my.yaml", overrides)
    return str(caught.value)


def test_entries_merge_by_name_and_new_ones_come_last() -> None:
    text = """\
extends: town
meters: [{name: energy, decay: .004}, {name: wit, decay: .001}]
cascades: [{source: mood, target: energy, strength: .001}, {source: wit, target: mood, strength: .002}]
affordances: [{name: Bed, each_tick: {wit: .01}}, {name: School, cell: [3, 3], at_end: {wit: .5}}]
"""
    town, mine = load("town"), from_text(text)
    assert mine.meters == (*town.meters, "wit")
    assert mine.affordances == (*town.affordances, "School")
    energy = mine.spec.meters[0]
    assert (energy.decay, energy.move) == (0.004, 0.005)
    assert mine.spec.affordances[0].each_tick == {"energy": 0.075, "wit": 0.01}
    assert [c.strength for c in mine.spec.cascades][2] == 0.001
    assert len(mine.spec.cascades) == len(town.spec.cascades) + 1


def test_rewards_and_observation_are_replaced() -> None:
    mine = from_text("extends: town-l2\nrewards: [vitality]\nobservation: [age, meters]\n")
    assert mine.rewards == ("vitality",)
    assert mine.layout.names == ("age", "meters")


def test_removed_meter_removes_its_references(tmp_path: Path) -> None:
    (tmp_path / "rich.yaml").write_text(
        "extends: town\nrewards: [{name: vitality, meters: [energy, fitness]}, {name: survival, meter: fitness}]\n"
    )
    (tmp_path / "poor.yaml").write_text("extends: rich.yaml\nremove: [fitness, hygiene]\n")
    spec = load(tmp_path / "poor.yaml").spec
    assert not {"fitness", "hygiene"} & {m.name for m in spec.meters}
    assert spec.modulations == ()
    assert [(c.source, c.target) for c in spec.cascades] == [
        ("satiation", "health"), ("satiation", "energy"), ("mood", "energy"), ("social", "mood"), ("social", "energy"),
    ]  # fmt: skip
    assert spec.affordances[2].name == "Shower"
    assert spec.affordances[2].each_tick == {}
    assert [r.model_dump(exclude_none=True) for r in spec.rewards] == [
        {"name": "vitality", "weight": 1.0, "meters": ("energy",)},
        {"name": "survival", "weight": 1.0},
    ]


def test_removed_currency_and_lethal_meter_leave_their_lists() -> None:
    free = "\n".join(f"  - {{name: {a.name}, price: 0}}" for a in load("town").spec.affordances)
    spec = from_text(f"extends: town\nremove: [money, health]\naffordances:\n{free}\n").spec
    assert spec.currency is None
    assert spec.lethal == ("energy",)


def test_links_and_affordances_are_removed_by_name() -> None:
    spec = from_text("extends: town\nremove: [Gym, mood->energy, fitness->health]\n").spec
    assert "Gym" not in [a.name for a in spec.affordances]
    assert ("mood", "energy") not in [(c.source, c.target) for c in spec.cascades]
    assert spec.modulations == ()
    assert len(spec.cascades) == 9


def test_removed_entry_can_be_redefined() -> None:
    spec = from_text(
        "extends: town\nremove: [Bed]\naffordances: [{name: Bed, cell: [0, 0], at_end: {energy: .9}}]\n"
    ).spec
    assert spec.affordances[-1].model_dump(exclude_defaults=True) == {
        "name": "Bed", "cell": (0, 0), "at_end": {"energy": 0.9},
    }  # fmt: skip


def test_unknown_name_in_remove_suggests_the_nearest() -> None:
    assert problems("extends: town\nremove: [Gymm, Bar]\n") == (
        "my.yaml:2:10: there is no 'Gymm' to remove; did you mean 'Gym'?"
    )
    assert "`remove` is not a list of names" in problems("extends: town\nremove: Gym\n")
    assert "my.yaml:1:1: `remove` without `extends`" in problems("remove: [Gym]\n")


def test_unknown_parent_suggests_the_nearest() -> None:
    assert problems("max_steps: 3\nextends: twon\n").startswith(
        "my.yaml:2:1: there is no world 'twon' to extend; did you mean 'town'?"
    )
    assert problems("extends: [town]\n").startswith("my.yaml:1:1: `extends` is not the name of a world")
    assert "there is no file 'other.yaml'" in problems("extends: other.yaml\n")


def test_extends_leads_only_to_worlds_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password: 1\n")
    (tmp_path / "base.yaml").write_text("extends: town\n")
    assert "to extend" in problems(f"extends: {tmp_path / 'secret'}\n")
    assert "to extend" in problems(f"extends: {tmp_path / 'base.yaml'}\n")


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "base.yaml").write_text("extends: town-l0\nmax_steps: 200\n")
    (tmp_path / "b.yaml").write_text("extends: a/base.yaml\n")
    (tmp_path / "a" / "c.yaml").write_text("extends: ../b.yaml\ndescription: last\n")
    world = load(str(tmp_path / "a" / "c.yaml"))
    assert (world.name, world.spec.max_steps, world.spec.description) == ("c", 200, "last")


def test_cyclic_extends_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("max_steps: 3\nextends: a.yaml\n")
    with pytest.raises(
        ConfigError, match=r"b\.yaml:2:1: worlds extend each other in a circle: a\.yaml → b\.yaml → a\.yaml"
    ):
        load(tmp_path / "a.yaml")


def test_long_chains_of_extends_are_rejected(tmp_path: Path) -> None:
    for i in range(30):
        (tmp_path / f"w{i}.yaml").write_text(f"extends: w{i + 1}.yaml\n")
    with pytest.raises(ConfigError, match="more than 16 worlds extend each other"):
        load(tmp_path / "w0.yaml")


def test_problem_in_a_parent_is_reported_in_its_file(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("extends: town\naffordances:\n  - {name: Bed, cell: [8, 8]}\n")
    (tmp_path / "child.yaml").write_text("extends: base.yaml\nmax_step: 9\n")
    with pytest.raises(ConfigError, match=r"child\.yaml:2:1: .*did you mean 'max_steps'"):
        load(tmp_path / "child.yaml")
    (tmp_path / "child.yaml").write_text("extends: base.yaml\n")
    with pytest.raises(ConfigError, match=r"base\.yaml:3:\d+: 'Bed' is outside the map"):
        load(tmp_path / "child.yaml")


def test_unknown_world_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="there is no world 'town-fogy'; did you mean 'town-foggy'"):
        load("town-fogy")


def test_overrides_reach_named_entries() -> None:
    world = load("town", ["affordances.Bed.price=.02", "cascades.mood->energy.strength=0", "map.boundary=wrap"])
    assert world.tables.price[0] == np.float32(0.1)
    assert world.tables.cascade_slope[2] == 0
    assert world.tables.passable.all()


def test_every_shipped_world_can_be_extended() -> None:
    for name in shipped():
        assert from_text(f"extends: {name}\n").content_hash == load(name).content_hash
