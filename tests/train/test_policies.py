"""A policy is loaded without the rest of its agent, and acts as the agent did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from narrow import instance, latest_checkpoint
from shared_runs import train_once
from small import SHARED, SMALL
from townlet.agents.policy import Policy
from townlet.errors import TownletError
from townlet.rng import Streams
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment
from townlet.tasks.town import PolicyPlayer
from townlet.tasks.town_evaluation import evaluate_town
from townlet.town.engines.engine import make_engine
from townlet.town.feasibility import measure_survival
from townlet.train.policies import TrainedPolicy, load_policy
from townlet.train.session import start
from townlet.train.training import build_training

RECIPES = {name: (name, SMALL[name]) for name in SMALL} | {
    "ppo, one body": ("town:ppo", (*SMALL["town:ppo"], "agent.shared=true")),
    "reinforce": ("town:ppo", ("agent={name: reinforce, episodes: 3}", "network.hidden=[16]", *SHARED)),
    "drqn, no carry": ("town-l2:drqn", (*SMALL["town-l2:drqn"], "agent.carry=false")),
    "ppo with memory": (
        "town:ppo",
        (*SMALL["town:ppo"], "network.recurrent={kind: lstm, size: 8, post_widths: [8]}", "agent.batch_size=1.0"),
    ),
}  # fmt: skip

QUICK = ("evaluation.episodes=2",)
LOADED: dict[Path, TrainedPolicy] = {}  # loaded once for all Hypothesis examples


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Runs paused after a few updates; read-only."""
    torch.set_num_threads(1)

    def train(root: Path) -> dict[str, Run]:
        loaded = {key: load_experiment(recipe, [*words, *QUICK]) for key, (recipe, words) in RECIPES.items()}
        return {key: start(each, root, pause_at=260).run for key, each in loaded.items()}

    return train_once(tmp_path_factory, "policies", train)


def output_name(trained: TrainedPolicy) -> str:
    """The name of the network's outputs."""
    return "values" if trained.kind == "values" else "logits"


def inputs(rows: int, size: int, actions: int, seed: int) -> tuple[Any, Any]:
    chance = np.random.default_rng(seed)
    mask = chance.random((rows, actions)) < 0.5
    mask[np.arange(rows), chance.integers(0, actions, rows)] = True
    return chance.random((rows, size), np.float32), mask


@pytest.mark.parametrize("key", RECIPES)
def test_policy_acts_as_the_saved_agent(runs: dict[str, Run], key: str) -> None:
    recipe, words = RECIPES[key]
    training = build_training(load_experiment(recipe, words))
    state, _ = checkpoint.load(latest_checkpoint(runs[key]).path)
    training.restore(state["training"])
    agent, trained = training.agent.policy(), load_policy(runs[key], "last")
    agent.reset(16)
    trained.reset(16)
    seen = set()
    for step in range(6):
        obs, mask = (torch.from_numpy(part) for part in inputs(16, trained.layout.size, trained.actions.n, step))
        fresh = torch.arange(16) == step
        wanted = agent.outputs(obs, mask, fresh)[output_name(trained)]
        assert torch.equal(trained.outputs(obs, mask, fresh)[output_name(trained)], wanted)
        actions = trained.act(obs, mask, fresh)
        assert torch.equal(actions, agent.act(obs, mask, fresh))
        seen |= set(actions.tolist())
    assert len(seen) > 1


def test_weights_are_those_of_the_checkpoint(runs: dict[str, Run]) -> None:
    recipe, words = RECIPES["town:ppo"]
    fresh = build_training(load_experiment(recipe, words)).agent.policy()
    trained = load_policy(runs["town:ppo"], "last")
    obs = torch.from_numpy(inputs(4, trained.layout.size, 6, 0)[0])
    assert not torch.equal(fresh.outputs(obs)["logits"], trained.outputs(obs)["logits"])


def test_arrays_lists_and_tensors_give_the_same_actions(runs: dict[str, Run]) -> None:
    trained = load_policy(runs["town:ppo"])
    obs, mask = inputs(5, trained.layout.size, trained.actions.n, 1)
    batch = trained.act(obs, mask)
    assert isinstance(batch, np.ndarray)
    assert batch.dtype == np.int64
    frozen = obs.copy()
    frozen.flags.writeable = False
    for other in (obs.tolist(), obs.astype(np.float64), frozen):
        assert np.array_equal(trained.act(other, mask), batch)
    tensors = trained.act(torch.from_numpy(obs), torch.from_numpy(mask))
    assert isinstance(tensors, torch.Tensor)
    assert tensors.tolist() == batch.tolist()
    single = [trained.act(row, allowed) for row, allowed in zip(obs, mask.astype(np.int8), strict=True)]
    assert single == batch.tolist()
    assert all(type(action) is int for action in single)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_invalid_action_is_never_taken(runs: dict[str, Run], data: st.DataObject) -> None:
    run = runs[data.draw(st.sampled_from(["town:ppo", "town-l0:dqn"]))]
    trained = LOADED.get(run.path) or LOADED.setdefault(run.path, load_policy(run))
    count = trained.actions.n
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any)))
    obs, _ = inputs(1, trained.layout.size, count, data.draw(st.integers(0, 99)))
    greedy = trained.kind == "values" or data.draw(st.booleans())
    assert mask[trained.act(obs[0], mask, greedy=greedy)]


@pytest.mark.parametrize("key", ["town-l2:drqn", "ppo with memory"])
def test_hidden_state_is_carried_until_reset(runs: dict[str, Run], key: str) -> None:
    trained = load_policy(runs[key])
    size, count = trained.layout.size, trained.actions.n
    first, then = (inputs(3, size, count, seed)[0] for seed in (1, 2))
    trained.reset(3)
    alone = trained.outputs(then)[output_name(trained)]
    trained.act(first)
    after = trained.outputs(then)[output_name(trained)]
    assert not np.allclose(after, alone)
    forgotten = trained.outputs(then, episode_start=[True, False, True])[output_name(trained)]
    assert np.allclose(forgotten[[0, 2]], alone[[0, 2]])
    assert np.allclose(forgotten[1], after[1])
    trained.reset(3)
    assert np.allclose(trained.outputs(then)[output_name(trained)], alone)
    with pytest.raises(TownletError, match="hidden states of 3 rows"):
        trained.act(first[:2])


def test_policy_player_survives_as_long_as_evaluated(runs: dict[str, Run]) -> None:
    """The engine of `townlet play` and the vector environment give the same episodes."""
    trained = load_policy(runs["town-l2:drqn"])
    evaluated = evaluate_town(trained.policy(), trained.world, 6, 7)
    key = Streams(Streams(7).child("0").key("env")).key("town")
    played = measure_survival(trained.world, PolicyPlayer(trained.policy()), 6, key)
    assert played.ages.tolist() == evaluated.length.tolist()


def test_policy_player_resets_its_hidden_state(runs: dict[str, Run]) -> None:
    trained = load_policy(runs["ppo with memory"])
    engine = make_engine(trained.world, 1, autoreset=False)
    engine.reset(0)
    old, new = (PolicyPlayer(trained.policy()) for _ in range(2))
    for _ in range(10):
        engine.step(old.act(engine))
    engine.reset_rows(np.ones(1, np.bool_))
    old.act(engine)
    new.act(engine)
    states = [instance(instance(player._policy, Policy)._hidden, torch.Tensor) for player in (old, new)]
    assert torch.equal(*states)


def test_best_and_last_are_two_checkpoints(tmp_path: Path) -> None:
    run = start(load_experiment("town:ppo", [*SMALL["town:ppo"], "budget.env_steps=512"]), tmp_path, pause_at=256).run
    state, info = checkpoint.load(latest_checkpoint(run).path)
    checkpoint.save(run.checkpoints, checkpoint.folder_name(128), state, {**info, "env_steps": 128, "score": 1e9})
    assert load_policy(run).env_steps == load_policy(run, "best").env_steps == 128
    assert load_policy(run, "last").env_steps == 256
    with pytest.raises(TownletError, match="no checkpoint 'first'"):
        load_policy(run, "first")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("obs", "mask", "reported"),
    [
        (np.zeros(5), None, "an observation has shape"),
        (np.zeros((2, 3, 88)), None, "an observation has shape"),
        (np.zeros((2, 88)), np.ones(6, bool), "`mask` has 1 rows, but `obs` has 2"),
        (np.zeros(88), np.ones(5, bool), "a mask has shape"),
    ],
)
def test_wrong_shapes_are_explained(runs: dict[str, Run], obs: Any, mask: Any, reported: str) -> None:
    with pytest.raises(TownletError, match=reported):
        load_policy(runs["town:ppo"]).act(obs, mask)


def test_run_of_another_interface_is_refused(tmp_path: Path) -> None:
    run = start(load_experiment("town:ppo", SMALL["town:ppo"]), tmp_path, pause_at=1).run
    run.update_meta(files={})  # like a run without checksums of its worlds
    for copy in run.worlds.iterdir():
        copy.write_text("extends: town-l2\n", encoding="utf-8")
    with pytest.raises(TownletError, match="was saved as float32"):
        load_policy(run)
