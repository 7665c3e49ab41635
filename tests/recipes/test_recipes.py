"""Recipes: lookup, `extends`, overrides and worlds."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from conftest import Write
from narrow import instance
from townlet.agents.dqn import DqnSettings
from townlet.agents.ppo import PpoSettings
from townlet.config.schedule import Schedule
from townlet.errors import TownletError
from townlet.recipes import catalog
from townlet.recipes.catalog import recipe_names, shipped_recipes
from townlet.recipes.load import load_recipe
from townlet.recipes.render import RecipeSummary, recipe_table
from townlet.recipes.schema import Recipe
from townlet.tasks.experiment import LoadedExperiment, load_experiment
from townlet.town.world.load import shipped as shipped_worlds
from train.conftest import is_installed

SHIPPED = (
    "town-l0:dqn", "town-l0-dual:dqn", "town:dqn", "town:ppo", "town:life", "town:ppo-gpu", "town:dqn-curriculum",
    "town:dqn-rnd", "town:pqn", "town:dqn-reference", "town:dqn-vitality",
    "town-l2:drqn", "town-l2:ppo", "town-l3:ppo", "town-shuffled:ppo", "town-foggy:drqn", "town-dark:ppo",
)  # fmt: skip

SMALL = """\
env: town-l0
rows: 8
agent: {name: dqn, lr: 1e-3, replay: 4000}
budget: {env_steps: 1e4}
"""
FAMILY = (
    SMALL
    + """\
variants:
  a:
    description: "The first."
    result: "lives long"
    tuned: true
    rows: 16
    agent: {lr: 5e-4}
  b:
    extends: a
    agent: {n_step: 3}
"""
)


def dqn(recipe: Recipe) -> DqnSettings:
    return instance(recipe.agent, DqnSettings)


def errors(asked: str, *overrides: str) -> list[str]:
    with pytest.raises(TownletError) as caught:
        load_experiment(asked, overrides)
    return [str(mistake) for mistake in caught.value.diagnostics]


@pytest.mark.parametrize("title", SHIPPED)
def test_every_shipped_recipe_is_valid(title: str) -> None:
    loaded = load_experiment(title)
    recipe = loaded.recipe
    assert recipe.title == title
    assert recipe.agent.name in title.replace("life", "ppo")
    assert recipe.description
    assert recipe.budget.env_steps
    assert recipe.budget.minutes
    assert loaded.worlds.training.name == recipe.env


def test_every_shipped_file_is_a_recipe() -> None:
    towns = [title for title in recipe_names() if title.startswith("town")]
    assert sorted(towns) == sorted(SHIPPED)
    assert {name for name in shipped_recipes() if name.startswith("town")} <= set(shipped_worlds())


def test_recipes_in_other_folders_are_valid() -> None:
    """Their environments are made in `test_render`, which loads them with overrides."""
    others = [title for title in recipe_names() if not title.startswith("town") and not title.startswith("gym:")]
    assert len(others) >= 8
    for title in filter(is_installed, others):
        loaded = load_recipe(title)
        recipe = loaded.recipe
        assert loaded.diagnostics == ()
        assert (recipe.title, recipe.metric) == (title, "return")
        assert recipe.description
        assert recipe.budget.env_steps


def test_life_trains_with_little_money_and_is_evaluated_longer_from_standard_start() -> None:
    loaded = load_experiment("town:life")
    assert loaded.recipe.starts is not None
    assert loaded.worlds.training.spec.max_steps == 1000
    assert loaded.worlds.evaluation.spec.max_steps == 2000
    assert loaded.worlds.training.rewards == ("milestone", "potential")
    assert loaded.worlds.evaluation.rewards == ("milestone",)
    assert loaded.worlds.evaluation.interface_hash == loaded.worlds.training.interface_hash


def test_a_tuned_recipe_names_the_command_of_its_result() -> None:
    for title in SHIPPED:
        recipe = load_experiment(title).recipe
        if recipe.tuned:
            assert recipe.result
            assert all(result.command.startswith(("townlet ", "python benchmarks/")) for result in recipe.result)


def test_result_fits_one_line_of_100_columns(write: Write) -> None:
    line = "x" * 78
    write("my.yaml", f"{SMALL}result: [{{what: {line}, command: townlet train town-l0:dqn}}]\n")
    assert load_experiment("my.yaml").recipe.result[0].what == line
    screen = io.StringIO()
    shown = [RecipeSummary("town:dqn-curriculum", "dqn", "1M steps", "About it.", f"{line}\n{line}")]
    Console(file=screen, width=100).print(recipe_table(shown))
    assert [text.rstrip()[21:] for text in screen.getvalue().splitlines() if "x" in text] == [line, line]
    write("my.yaml", f"{SMALL}result: {line}x\n")
    (said,) = errors("my.yaml")
    assert "78" in said


def test_small_updates_use_one_thread_and_large_ones_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    counts = {
        title: load_experiment(title).recipe.thread_count
        for title in ("town-l0:dqn", "town:dqn", "CartPole-v1:ppo", "CartPole-v1:reinforce", "town:ppo", "town-l2:drqn")
    }
    assert list(counts.values()) == [1, 1, 1, 1, 8, 8]
    assert load_experiment("town:dqn", ["agent.batch_size=4096"]).recipe.thread_count == 8
    assert load_experiment("town:dqn", ["threads=3"]).recipe.thread_count == 3


# --- names


def test_name_without_variant_lists_variants_with_results(write: Write) -> None:
    write("my.yaml", FAMILY)
    (said,) = errors("my.yaml")
    assert said.startswith("my.yaml has 2 variants; choose one")
    assert "my.yaml:a  The first. lives long" in said
    assert "my.yaml:b" in said
    (said,) = errors("CartPole-v1")
    assert "CartPole-v1:dqn" in said


@pytest.mark.parametrize("name", sorted({name.partition(":")[0] for name in SHIPPED}))
def test_every_town_can_be_trained_by_its_name_alone(name: str) -> None:
    """The page suggests `townlet train FILE` for an edited world, which takes the recipes of the world it extends."""
    assert load_experiment(name).recipe.env == name


def test_the_only_variant_and_the_default_one_need_no_name(write: Write) -> None:
    write("my.yaml", FAMILY + "default: b\n")
    assert load_experiment("town-l0").recipe.title == "town-l0:dqn"
    assert load_experiment("town").recipe.title == "town:dqn"
    assert load_experiment("my.yaml").recipe.variant == "b"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("twon:ppo", "there is no recipe 'twon'; did you mean 'town'?"),
        ("Taxi-v3:qlearning", "there is no recipe Taxi-v3:qlearning; did you mean 'Taxi-v4:qlearning'?"),
        ("town:pp0", "town has no variant 'pp0'; did you mean 'town:ppo'?"),
        ("ppo", "there is no recipe 'ppo'; did you mean 'town:ppo'?"),
        ("none.yaml:ppo", "there is no file 'none.yaml'; write its path relative to "),
        ("my:a", "there is no recipe 'my'; did you mean 'my.yaml'?"),
        ("my.yaml:c", "my.yaml has no variant 'c'; known: a, b"),
        ("", "there is no recipe ''"),
    ],
)
def test_close_names_are_suggested(write: Write, asked: str, message: str) -> None:
    write("my.yaml", FAMILY)
    assert errors(asked)[0].startswith(message)


# --- layers


def test_base_then_variant_then_command_line(write: Write) -> None:
    write("my.yaml", FAMILY)
    plain, changed = (
        load_experiment("my.yaml:a").recipe,
        load_experiment("my.yaml:a", ["rows=32", "agent.lr=1e-5"]).recipe,
    )
    assert (plain.rows, dqn(plain).lr, dqn(plain).replay) == (16, 5e-4, 4000)
    assert (changed.rows, dqn(changed).lr, dqn(changed).replay) == (32, 1e-5, 4000)


def test_variant_does_not_inherit_description_and_result(write: Write) -> None:
    write("my.yaml", FAMILY)
    first, second = load_experiment("my.yaml:a").recipe, load_experiment("my.yaml:b").recipe
    assert (second.rows, dqn(second).lr, dqn(second).n_step) == (16, 5e-4, 3)
    assert (first.tuned, len(first.result), first.result[0].what) == (True, 1, "lives long")
    assert (second.tuned, second.result, second.description) == (False, (), "")


def test_file_overrides_what_it_extends(write: Write) -> None:
    write("my.yaml", FAMILY)
    write("child.yaml", "extends: my.yaml\nrows: 99\nvariants:\n  a: {agent: {lr: 7e-4}}\n  c: {extends: b}\n")
    a, b, c = (load_experiment(f"child.yaml:{v}").recipe for v in "abc")
    assert (a.rows, dqn(a).lr) == (99, 7e-4)
    assert (b.rows, dqn(b).lr, dqn(b).n_step) == (99, 5e-4, 3)
    assert c.agent == b.agent
    assert c.variant == "c"


def test_a_variant_may_extend_one_of_another_file(write: Write) -> None:
    write("my.yaml", "env: town-l2\nrows: 512\nvariants:\n  mine: {extends: 'town:ppo', agent: {epochs: 9}}\n")
    mine, theirs = load_experiment("my.yaml:mine").recipe, load_experiment("town:ppo").recipe
    assert mine.env == "town-l2"
    assert mine.rows == 512
    assert mine.agent == theirs.agent.model_copy(update={"epochs": 9})


def test_a_shipped_recipe_is_extended_by_name(write: Write) -> None:
    write("my.yaml", "extends: town\nseed: 5\n")
    assert load_experiment("my.yaml:ppo").recipe.agent == load_experiment("town:ppo").recipe.agent
    assert load_experiment("my.yaml:ppo").recipe.seed == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: twon\nrows: 2\n", "my.yaml:1:1: there is no recipe 'twon' to extend; did you mean 'town'?"),
        ("extends: my.yaml\nrows: 2\n", "recipes extend each other in a circle"),
        ("variants: {a: {extends: b}, b: {extends: a}}\n", "variants extend each other in a circle: a → b → a"),
        ("variants: {a: {extends: c}, b: {}}\n", "there is no variant 'c' to extend; known: b"),
        ("variants: {a: {extends: 'town:pp0'}}\n", "my.yaml:1:16: town has no variant 'pp0'; did you mean 'town:ppo'?"),
        ("variants: {a: {extends: 'my.yaml:a'}}\n", "recipes extend each other in a circle"),
        ("variants: {a: {extends: [b]}}\n", "`extends` is not the name of a variant"),
        ("variants: [a]\n", "my.yaml:1:1: `variants` is not a mapping"),
        ("variants: {a: 3}\n", "variant 'a' is not a mapping"),
        ("variants: {a: {}}\ndefault: b\n", "`default` does not name a variant of this file"),
    ],
)
def test_wrong_structure_is_reported_with_its_location(write: Write, text: str, message: str) -> None:
    write("my.yaml", text)
    assert message in errors("my.yaml:a")[0]


def test_files_that_extend_each_other_are_refused(write: Write) -> None:
    write("one.yaml", "extends: two.yaml\nrows: 1\n")
    write("two.yaml", "extends: one.yaml\nrows: 2\n")
    assert "circle" in errors("one.yaml:a")[0]


# --- the command line


def test_another_agent_on_the_command_line_takes_none_of_the_old_settings() -> None:
    fresh = type(load_experiment("town:ppo").recipe.agent)
    for overrides in (["agent=ppo", "agent.epochs=7"], ["agent.epochs=7", "agent.name=ppo"]):
        agent = load_experiment("town:dqn", overrides).recipe.agent
        assert agent == fresh.model_validate({"name": "ppo", "epochs": 7})


def test_parts_with_default_name_need_no_name() -> None:
    recipe = load_experiment("town:ppo", ["explore.action_selection.end=.2", "network.hidden=tiny"]).recipe
    assert recipe.explore.action_selection.model_dump()["end"] == 0.2
    assert recipe.network.model_dump()["hidden"] == "tiny"


def test_scientific_notation_gives_integers() -> None:
    recipe = load_experiment("town:dqn", ["budget.env_steps=1e5", "agent.replay=2.5e4", "rows=32.0"]).recipe
    assert (recipe.budget.env_steps, dqn(recipe).replay, recipe.rows) == (100_000, 25_000, 32)
    ppo = load_experiment("town:ppo", ["agent.batch_size=1.0"]).recipe.agent
    assert instance(ppo, PpoSettings).batch_size == 1.0


def test_partial_schedule_starts_at_inherited_value() -> None:
    recipe = load_experiment("town-l0:dqn", ["agent.lr=1e-3", "agent.lr.end=0", "agent.lr.from=.5"]).recipe
    lr = instance(dqn(recipe).lr, Schedule)
    assert (lr.start, lr.from_) == (1e-3, 0.5)


# --- custom worlds


def own_town(write: Write, text: str = "extends: town-l2\nmax_steps: 77\n") -> Path:
    return write("places/my-town.yaml", text)


def test_an_edited_world_trains_with_one_command(write: Write) -> None:
    path = own_town(write)
    loaded = load_experiment("places/my-town.yaml:ppo")
    assert loaded.recipe.title == "my-town:ppo"
    assert loaded.recipe.world == str(path)
    assert loaded.recipe.description == "town-l2:ppo in the world my-town."
    assert loaded.worlds.training.spec.max_steps == 77
    assert loaded.recipe.agent == load_experiment("town-l2:ppo").recipe.agent


@pytest.mark.parametrize("text", ["extends: town-l1\nmax_steps: 9\n", "extends: town-house\n"])
def test_world_uses_recipes_of_nearest_extended_world(write: Write, text: str) -> None:
    own_town(write, text)
    assert load_experiment("places/my-town.yaml:dqn").recipe.agent == load_experiment("town:dqn").recipe.agent


def test_shipped_world_without_recipe_can_be_trained() -> None:
    loaded = load_experiment("town-house:ppo")
    assert loaded.recipe.title == "town-house:ppo"
    assert loaded.recipe.world == "town-house"
    assert (loaded.recipe.tuned, loaded.recipe.result) == (False, ())


def test_results_are_not_inherited_by_another_world(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("shipped/town.yaml", FAMILY.replace("town-l0", "town"))
    monkeypatch.setattr(catalog, "FOLDER", tmp_path / "shipped")
    shipped_recipes.cache_clear()
    try:
        here, there = load_experiment("town:a").recipe, load_experiment("town-house:a").recipe
    finally:
        monkeypatch.undo()
        shipped_recipes.cache_clear()
    assert here.tuned
    assert here.result
    assert (there.tuned, there.result, there.agent) == (False, (), here.agent)


def test_world_path_is_relative_to_recipe_file(write: Write) -> None:
    own_town(write)
    write("places/my.yaml", "extends: town\nworld: my-town.yaml\n")
    for asked, overrides in (("places/my.yaml:ppo", []), ("town:ppo", ["world=places/my-town.yaml"])):
        assert load_experiment(asked, overrides).worlds.training.spec.max_steps == 77


def test_errors_in_world_keep_their_location(write: Write) -> None:
    own_town(write, "extends: town\nmax_stepz: 3\n")
    (said,) = errors("places/my-town.yaml:ppo")
    assert "my-town.yaml:2:1: unknown key 'max_stepz'; did you mean 'max_steps'?" in said


def test_changes_reach_the_world(write: Write) -> None:
    changes = ["change.affordances.Bed.price=.5", "change.rewards=[milestone, vitality]", "potential=0"]
    loaded = load_experiment("town:ppo", changes)
    assert loaded.worlds.training.spec.affordances[0].price == 0.5
    assert loaded.worlds.training.rewards == ("milestone", "vitality")
    write("my.yaml", SMALL + "change:\n  max_steps: 1e2\n  meters: {energy: {decay: .01}}\n")
    world = load_experiment("my.yaml").worlds.training
    assert world.spec.max_steps == 100
    assert world.spec.meters[0].decay == 0.01


def test_the_command_line_reaches_into_lists_of_the_recipe_and_of_the_world() -> None:
    guided = ["change.rewards=[milestone, potential]", "change.rewards.potential.weight=3"]
    rewards = load_experiment("town:ppo", guided).worlds.training.spec.rewards
    assert [reward.weight for reward in rewards] == [1, 3]
    assert (
        load_experiment("town:ppo", ["change.rewards.milestone.death=-5"]).worlds.training.tables.milestone_death == -5
    )


def test_wrong_change_is_reported_at_its_location_in_recipe(write: Write) -> None:
    write("my.yaml", SMALL + "change:\n  max_steps: never\n  affordances: {Bed: {price: 3}}\n")
    first, second = errors("my.yaml")
    assert first.startswith("my.yaml:6:3: max_steps cannot be the string 'never'")
    assert second.startswith("my.yaml:7:23: affordances.Bed.price cannot be 3")


def test_misplaced_keys_get_the_right_part_suggested(write: Write) -> None:
    write("my.yaml", SMALL + "max_steps: 5\nlr: 3\nepisodes: 9\nevery: .1\nrwos: 3\n")
    assert [said.partition(";")[2].strip() for said in errors("my.yaml")] == [
        "write it in `change`",
        "write it in `agent`",
        "write it in `budget`",
        "write it in `evaluation`",
        "did you mean 'rows'?",
    ]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("max_steps=700", "change.max_steps=700"),
        ("meters.energy.decay=.1", "change.meters.energy.decay=.1"),
        ("lr=1e-3", "agent.lr=1e-3"),
        ("steps=1e5", "budget.env_steps=1e5"),
        ("batch=32", "agent.batch_size=32"),
    ],
)
def test_misplaced_override_gets_corrected_override_suggested(word: str, meant: str) -> None:
    (said,) = errors("town:ppo", word)
    assert said.startswith(f"command line: {word}: ")
    assert said.endswith(f"did you mean {meant}?")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("budget.env_steps=abc", "budget.env_steps cannot be the string 'abc'"),
        ("agent.lr=abc", "agent.lr cannot be the string 'abc'"),
        ("rows=none", "rows cannot be 'none'"),
        ("agent.batch_size=x", "agent.batch_size cannot be the string 'x'"),
        ("evaluation.every=-1", "evaluation.every cannot be -1"),
        ("agent.lates=1", "unknown key 'lates' in agent"),
    ],
)
def test_one_error_gives_one_message(word: str, said: str) -> None:
    """Consequences of a wrong value, such as a budget without steps, are not reported too."""
    (found,) = errors("town:ppo", word)
    assert said in found


@pytest.mark.parametrize(("key", "meant"), [("lerning_rate", "lr"), ("learning_rate", "lr"), ("discount", "gamma")])
def test_written_out_key_suggests_short_key(key: str, meant: str) -> None:
    (said,) = errors("town:ppo", f"agent.{key}=1")
    assert said.endswith(f"did you mean '{meant}'?")


def test_env_steps_override_needs_no_budget_prefix() -> None:
    assert load_experiment("town:ppo", ["env_steps=2e4", "minutes=3"]).recipe.budget.model_dump() == {
        **load_experiment("town:ppo").recipe.budget.model_dump(), "env_steps": 20_000, "minutes": 3.0
    }  # fmt: skip


def test_every_key_has_a_description() -> None:
    def silent(model: object, path: str) -> list[str]:
        fields = getattr(model, "model_fields", {})
        return [f"{path}.{name}" for name, info in fields.items() if not info.description and name != "name"]

    loaded: LoadedExperiment = load_experiment("town:ppo")
    parts = {name: type(getattr(loaded.recipe, name)) for name in ("budget", "evaluation", "checkpoints", "metrics")}
    assert [key for name, model in {"recipe": Recipe, **parts}.items() for key in silent(model, name)] == []


def test_potential_is_added_to_rewards_of_world(write: Write) -> None:
    own_town(write, "extends: town\nrewards: [{name: vitality, meters: [energy], weight: 3}]\n")
    spec = load_experiment("places/my-town.yaml:dqn", ["potential=7", "agent.gamma=.9"]).worlds.training.spec
    assert [(reward.name, reward.weight) for reward in spec.rewards] == [("vitality", 3.0), ("potential", 7.0)]
    assert getattr(spec.rewards[0], "meters", None) == ("energy",)
    assert getattr(spec.rewards[1], "gamma", None) == 0.9
    assert load_experiment("places/my-town.yaml:dqn").worlds.evaluation.rewards == ("vitality",), (
        "guidance is for learning"
    )
    own_town(write, "extends: town\nrewards: [milestone, {name: potential, weight: 5}]\n")
    assert load_experiment("places/my-town.yaml:dqn").worlds.training.spec.rewards[1].weight == 5.0
