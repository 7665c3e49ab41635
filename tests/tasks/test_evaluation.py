"""Evaluation in towns: complete episodes, each counted once, determined by the seed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from townlet import load_world
from townlet.interfaces.vec_env import Discrete
from townlet.rng import Streams
from townlet.runs.metrics_reader import MetricsReader
from townlet.tasks.evaluation import ActingPolicy, RandomPolicy
from townlet.tasks.town_evaluation import PARALLEL_TOWNS, PlannerPolicy, TownEvaluation, evaluate_town, with_limit
from townlet.town.env import Town
from townlet.town.world.tables import World
from townlet.train.session import start
from townlet.train.stop_conditions import Interrupted
from townlet.train.training import build_training
from train.tiny import tiny

RANDOM_LENGTH = 112.9  # mean over many thousand episodes


class Scripted:
    """Deterministic policy that cycles through the valid actions."""

    def reset(self, rows: int) -> None:
        self.age = torch.zeros(rows, dtype=torch.int64)

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        assert mask is not None
        if episode_start is not None:
            self.age[episode_start] = 0
        self.age += 1
        order = (torch.arange(mask.shape[1]) * 7 + 3 * self.age.unsqueeze(1)) % 11
        return torch.where(mask, order, -1).argmax(1)


class MixedPolicy(PlannerPolicy):
    """Row 0 plans; the others follow another policy and die several times meanwhile. Stores every action."""

    def __init__(self, world: World, others: ActingPolicy) -> None:
        super().__init__(world)
        self.others, self.actions = others, list[Tensor]()

    def reset(self, rows: int) -> None:
        self.others.reset(rows)

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        actions = self.others.act(obs, mask, episode_start, greedy).clone()
        actions[0] = super().act(obs, mask, episode_start, greedy)[0]
        self.actions.append(actions)
        return actions


def replay(world: World, rows: int, seed: int, actions: list[Tensor]) -> list[dict[str, Any]]:
    """The first episode of each row, replayed step by step from the actions taken."""
    town = Town(world, rows, threads=1)
    town.engine.track_usage(rows)
    town.reset(Streams(seed).child("0").key("env"))
    episodes: list[dict[str, Any]] = [
        {"length": 0, "reward": 0.0, "uses": Counter(), "over": False} for _ in range(rows)
    ]
    for taken in actions:
        step, last = town.step(taken), town.final_obs()
        for row, episode in enumerate(episodes):
            if episode["over"]:
                continue
            episode["length"] += 1
            episode["reward"] += float(step.reward[row])
            used = int(town.engine.used[row]) // 2
            if used < len(world.affordances):
                episode["uses"][world.affordances[used]] += 1
            if row in last.rows.tolist():
                episode["over"] = True
                place = last.rows.tolist().index(row)
                episode["terminated"] = bool(step.terminated[row])
                episode["cause"] = town.cause_names[int(town.causes(last)[place])]
                episode["meters"] = town.final_meters(last)[place].tolist()
    town.close()
    return episodes


@pytest.mark.parametrize("name", ["town", "town-l3"])
def test_evaluation_equals_an_independent_count(name: str) -> None:
    world = load_world(name, ["max_steps=300"])
    for others in (Scripted(), RandomPolicy(Discrete(world.actions), torch.Generator().manual_seed(1))):
        player = MixedPolicy(world, others)
        found = evaluate_town(player, world, 6, 9)
        episodes = replay(world, 6, 9, player.actions)
        assert all(episode["over"] for episode in episodes)
        assert found.length.tolist() == [episode["length"] for episode in episodes]
        assert found.returns == pytest.approx([episode["reward"] for episode in episodes], rel=1e-5)
        assert found.terminated.tolist() == [episode["terminated"] for episode in episodes]
        assert list(found.causes) == [episode["cause"] for episode in episodes]
        assert found.meters == pytest.approx(np.array([episode["meters"] for episode in episodes]))
        uses = [[episode["uses"][place] for place in world.affordances] for episode in episodes]
        assert found.uses.tolist() == uses
        jobs = [k for k, place in enumerate(world.affordances) if place in ("Job", "Labor")]
        assert found.earns_money == sum(any(episode[k] for k in jobs) for episode in uses) / 6
        assert len(player.actions) == found.length.max() == 300  # not one step longer than the longest episode
        assert found.length.min() < 150  # some other rows were reset, and none of their further episodes counts


def test_number_of_episodes_is_exact() -> None:
    world = load_world("town", ["max_steps=30"])
    for episodes in (1, 3, PARALLEL_TOWNS + 5):
        found = evaluate_town(Scripted(), world, episodes, 0)
        assert len(found.length) == len(found.causes) == len(found.uses) == episodes


class FirstObservation(Scripted):
    """Stores the first observation."""

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        if episode_start is None:
            self.first = obs.clone()
        return super().act(obs, mask, episode_start, greedy)


def test_towns_vary_and_depend_on_the_seed_only() -> None:
    world, seen = load_world("town", ["max_steps=2"]), []
    for seed in (1, 1, 2):
        player = FirstObservation()
        evaluate_town(player, world, 400, seed)
        seen.append(player.first)
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
    assert len(torch.unique(seen[0], dim=0)) > 50  # of 64 possible start cells


def test_random_agent_survives_the_expected_time() -> None:
    found = evaluate_town(
        RandomPolicy(Discrete(load_world("town").actions), Streams(3).torch("random")), load_world("town"), 500, 3
    )
    assert found.mean_length == pytest.approx(RANDOM_LENGTH, abs=3)
    assert found.survived == 0


def test_longer_limit_prolongs_good_episodes() -> None:
    world = load_world("town")
    short = evaluate_town(PlannerPolicy(world), world, 5, 0)
    assert (short.mean_length, short.survived, set(short.causes)) == (500, 1, {"time"})
    longer = evaluate_town(PlannerPolicy(world), with_limit(world, 800), 5, 0)
    assert (longer.mean_length, longer.earns_money) == (800, 1)
    assert longer.earned.min() > 0
    random = evaluate_town(
        RandomPolicy(Discrete(world.actions), torch.Generator().manual_seed(0)), with_limit(world, 1500), 20, 0
    )
    assert random.mean_length < 200


@pytest.mark.parametrize(
    ("recipe", "words"), [("town:dqn", ()), ("town:ppo", ()), ("town-l2:drqn", ("network.recurrent={size: 8}",))]
)
def test_greedy_evaluation_is_deterministic(recipe: str, words: tuple[str, ...]) -> None:
    loaded = tiny(recipe, *words)
    t, world = build_training(loaded), loaded.worlds.evaluation
    one, two = (evaluate_town(t.agent.policy(), world, 7, 5) for _ in range(2))
    assert one.length.tolist() == two.length.tolist()
    assert one.returns.tolist() == two.returns.tolist()


def test_sampled_actions_come_from_the_stream_of_the_policy() -> None:
    """A new policy draws the same actions, so that a resumed run evaluates like an uninterrupted one."""
    loaded = tiny("town:ppo")
    t, world = build_training(loaded), loaded.worlds.evaluation
    one, two = (evaluate_town(t.agent.policy(), world, 7, 5, greedy=False) for _ in range(2))
    assert one.returns.tolist() == two.returns.tolist()
    assert one.uses.tolist() != evaluate_town(t.agent.policy(), world, 7, 5).uses.tolist()


def test_evaluation_columns_of_the_store() -> None:
    world = load_world("town", ["max_steps=120"])
    found = evaluate_town(RandomPolicy(Discrete(world.actions), torch.Generator().manual_seed(0)), world, 40, 1)
    row = found.columns("random", "length")
    assert (row["policy"], row["episodes"], row["limit"]) == ("random", 40, 120)
    assert row["length_min"] <= row["length"] == row["score"] <= row["length_max"] <= 120
    assert sum(row["causes"].values()) == 40
    assert 0 < row["survived"] < 1
    assert row["survived"] == row["causes"]["time"] / 40
    assert set(row["meters"]) == set(world.meters)
    assert found.columns("random", "return")["score"] == pytest.approx(found.returns.mean())


def test_run_is_evaluated_in_its_evaluation_world(tmp_path: Path) -> None:
    """Not in its training world, which has another limit and shaping rewards."""
    words = ("evaluation.change.max_steps=25", "change.max_steps=60", "potential=100", "budget={env_steps: 400}")
    loaded = tiny("town:dqn", *words)
    assert "potential" in loaded.worlds.training.rewards
    assert "potential" not in loaded.worlds.evaluation.rewards
    outcome = start(loaded, tmp_path)
    assert isinstance(outcome.ending.evaluation, TownEvaluation)
    assert outcome.ending.evaluation.world is loaded.worlds.evaluation
    with MetricsReader(outcome.run.metrics_file) as metrics:
        found = metrics.read("evaluations", ["policy", "limit", "length_max"])
        assert set(found["policy"]) == {"random", "greedy"}
        assert set(found["limit"]) == {25}
        assert max(found["length_max"]) <= 25
        assert max(metrics.read("episodes", ["length"])["length"]) > 25


def test_evaluation_can_be_interrupted_at_any_step() -> None:
    calls = 0

    def check_interrupt() -> None:
        nonlocal calls
        calls += 1
        if calls == 20:
            raise Interrupted

    world = load_world("town", ["max_steps=30"])
    with pytest.raises(Interrupted):
        evaluate_town(Scripted(), world, 5, 0, check_interrupt=check_interrupt)
    assert calls == 20
