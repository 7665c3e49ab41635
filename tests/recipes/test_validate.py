"""Recipes whose settings contradict each other."""

from __future__ import annotations

import pytest

from conftest import Write
from townlet.errors import TownletError
from townlet.tasks.experiment import load_experiment


def errors(asked: str, *overrides: str) -> list[str]:
    with pytest.raises(TownletError) as caught:
        load_experiment(asked, overrides)
    return [str(mistake) for mistake in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["agent=reinforce", "network.recurrent={size: 8}"], "reinforce cannot train a recurrent network"),
        (["agent=drqn"], "agent=drqn: drqn needs a recurrent network, and mlp is not recurrent"),
        (["network.recurrent={size: 8}"], "network.recurrent={size: 8}: dqn cannot train a recurrent network"),
        (["agent.replay=100"], "agent.batch_size is 256, but agent.replay holds only 100"),
        (
            ["agent.warmup=2e5"],
            "agent.warmup waits for 200000 transitions, but agent.replay keeps only 100000; lower agent.warmup",
        ),
        (
            ["curriculum=adaptive", "potential=0"],
            "the curriculum's stages use the rewards potential, but town has only milestone",
        ),
        (["budget={name: x}"], "unknown key 'name' in budget"),
        (["budget=null"], "budget cannot be empty (null)"),
        (["device=gpu"], "there is no device 'gpu'"),
        (["rows=0"], "rows cannot be 0"),
        (["rows=many"], "rows cannot be 'many'"),
        (["seed=-1"], "seed cannot be -1"),
        (["evaluation.change.observation=partial"], "evaluation.change changes the actions or the observation"),
        (["evaluation.change.affordances.Bar.name=Pub"], "evaluation.change changes the actions or the observation"),
    ],
)
def test_contradictions_are_reported_at_their_location(overrides: list[str], message: str) -> None:
    found = errors("town:dqn", *overrides)
    assert any(message in said for said in found)
    assert any(said.startswith("command line: ") for said in found)


@pytest.mark.parametrize("setting", ["clip: 0", "clip: {start: 0, end: 0.2}", "clip: lin_0", "value_clip: 0.0"])
def test_clip_range_of_zero_is_refused_at_its_line(setting: str, write: Write) -> None:
    write("mine.yaml", f"env: town\nvariants:\n  mine:\n    extends: town:ppo\n    agent:\n      {setting}\n")
    (said,) = errors("mine.yaml:mine")
    assert "mine.yaml:6:" in said
    assert "it must be greater than 0" in said
    assert load_experiment("town:ppo", ["agent.clip=lin_0.2"]).recipe.agent.name == "ppo"  # 0 only at its end


def test_a_batch_is_no_larger_than_the_rollout() -> None:
    rollout = "agent.n_steps=16"
    (said,) = errors("town:ppo", "rows=8", rollout, "agent.batch_size=129")
    assert "agent.batch_size is 129, but a rollout has 128 steps (8 rows × 16)" in said
    assert load_experiment("town:ppo", ["rows=8", rollout, "agent.batch_size=128"]).recipe.row_count == 8


def test_sequences_fit_into_replay_buffer() -> None:
    sizes = ["rows=10", "agent.sequence_length=30", "agent.burn_in=10", "agent.warmup=10"]
    assert "one sequence of every row needs 400" in errors("town-l2:drqn", *sizes, "agent.replay=399")[0]
    assert load_experiment("town-l2:drqn", [*sizes, "agent.replay=400"]).recipe.agent.name == "drqn"


def test_a_run_must_end(write: Write) -> None:
    write("my.yaml", "env: town\nagent: ppo\nbudget: {}\n")
    (said,) = errors("my.yaml")
    assert said.startswith("my.yaml:3:1: budget: nothing ends this run; set one of env_steps, minutes, episodes")


def test_fractions_need_budget_in_env_steps(write: Write) -> None:
    text = "env: town\nagent: {name: ppo, lr: lin_1e-3}\nbudget: {minutes: 1}\n"
    write("my.yaml", text)
    found = errors("my.yaml")
    assert [said.split()[:2] for said in found] == [
        ["my.yaml:1:1:", "evaluation.every"], ["my.yaml:1:1:", "metrics.every"], ["my.yaml:2:20:", "agent.lr"],
    ]  # fmt: skip
    write("my.yaml", text.replace("lin_1e-3", "{start: 1, from: 10, to: 1e6}"))
    assert load_experiment("my.yaml", ["evaluation.every=1e5", "metrics.every=1e4"]).recipe.to_env_steps(1e5) == 100_000


def test_potential_uses_discount_of_agent() -> None:
    guided = ["change.rewards=[milestone, potential]", "agent.gamma=.9"]
    worlds = load_experiment("town:ppo", guided).worlds
    assert worlds.training.tables.potential_gamma == pytest.approx(0.9)
    other = "change.rewards=[milestone, {name: potential, gamma: .8}]"
    assert "has gamma 0.8, but agent.gamma is 0.9" in errors("town:ppo", *guided, other)[0]
    assert load_experiment("town:ppo", [other, "agent.gamma=.8"]).recipe.agent.gamma == 0.8


def test_a_curriculum_with_its_rewards_is_accepted() -> None:
    for guided in ("potential=2", "change.rewards=[milestone, potential]"):
        loaded = load_experiment("town:dqn", ["curriculum=adaptive", "potential=0", guided])
        assert loaded.recipe.curriculum is not None
    sparse = "curriculum={name: fixed, stages: [{active: [energy], reward: sparse}]}"
    assert load_experiment("town:dqn", [sparse, "potential=0"]).worlds.training.rewards == ("milestone",)


def test_starts_with_little_money_work_in_world_without_money(write: Write) -> None:
    write(
        "free.yaml",
        "description: no money\nmeters:\n  - {name: energy, decay: .01, move: .01}\nlethal: [energy]\n"
        "map: {size: [3, 3]}\naffordances:\n  - {name: Bed, cell: [1, 1], each_tick: {energy: .5}}\n",
    )
    loaded = load_experiment("free.yaml:ppo")
    assert loaded.recipe.starts is not None
    assert loaded.recipe.starts.money is not None
    assert loaded.worlds.training.spec.currency is None


def test_all_errors_are_reported_at_once(write: Write) -> None:
    write("my.yaml", "env: town\nagent: {name: dqn, replay: 10}\nbudget: {env_steps: 1e4}\nsed: 3\nrows: -1\n")
    found = errors("my.yaml", "change.max_steps=x")
    assert len(found) >= 4
    for part in ("agent.replay holds only 10", "unknown key 'sed'", "rows cannot be -1", "max_steps cannot be"):
        assert any(part in said for said in found), part


def test_fractions_are_of_the_budget() -> None:
    recipe = load_experiment("town:ppo", ["budget.env_steps=1e6"]).recipe
    assert (recipe.to_env_steps(0.25), recipe.to_env_steps(1.0), recipe.to_env_steps(5000)) == (
        250_000,
        1_000_000,
        5000,
    )


def test_auto_rows_are_resolved() -> None:
    assert load_experiment("town:dqn", ["rows=auto"]).recipe.row_count == 64
    assert load_experiment("town:ppo", ["rows=auto"]).recipe.row_count == 1024
