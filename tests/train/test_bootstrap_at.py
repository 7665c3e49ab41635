"""`bootstrap_at`: which ends of episodes learning bootstraps from. Episodes themselves stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from agents.training_loop import differing_leaves
from narrow import instance
from townlet.agents.dqn import Dqn
from townlet.agents.ppo import Ppo
from townlet.interfaces.vec_env import Episodes, FinalObs
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.tasks.experiment import LoadedExperiment, load_experiment
from townlet.train import training
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.session import resume, start
from townlet.train.training import Training, build_training

# Under a random policy about half of the episodes of CartPole are longer than 18 steps.
SMALL = (
    "threads=1", "rows=4", "network.hidden=[16]", "gym.vectorization=sync", "gym.max_episode_steps=18",
    "evaluation={episodes: 2, every: 256}", "env_steps=512",
    "metrics={every: 256, tensorboard: false, report: false}",
)  # fmt: skip
AGENTS = {
    "ppo": ("CartPole-v1:ppo", "agent.n_steps=64", "agent.lr=1e-3"),
    "dqn": ("CartPole-v1:dqn", "agent.warmup=100", "agent.n_step=1", "agent.reward_scale=1", "agent.double=false"),
}
CHOICES = ("truncation", "none", "every_end")


class EpisodeCollector(NullListener):
    """Stores the lengths of all reported episodes."""

    def __init__(self) -> None:
        self.lengths: list[float] = []

    def on_episodes(self, over: Episodes, ended: FinalObs) -> None:
        self.lengths += over.length.tolist()


def small(agent: str, *words: str) -> LoadedExperiment:
    recipe, *own = AGENTS[agent]
    return load_experiment(recipe, [*SMALL, *own, *words])


def collected(agent: str, *words: str) -> tuple[Training, EpisodeCollector]:
    """A training that has collected 64 steps but has not learned yet."""
    t, listener = build_training(small(agent, *words)), EpisodeCollector()
    collect(t, 64, listener)
    return t, listener


def ppo_rollout(choice: str) -> Any:
    return instance(collected("ppo", f"bootstrap_at={choice}")[0].agent, Ppo).rollout


def test_truncation_is_the_default_and_changes_nothing() -> None:
    assert small("ppo").recipe.bootstrap_at == "truncation"
    for agent in AGENTS:
        default, chosen = (collected(agent, *words)[0].agent.state() for words in ((), ("bootstrap_at=truncation",)))
        assert differing_leaves(default, chosen) == []


@pytest.mark.parametrize("agent", AGENTS)
def test_episodes_end_and_are_counted_as_before(agent: str) -> None:
    expected, *others = (collected(agent, f"bootstrap_at={choice}") for choice in CHOICES)
    assert 18 in expected[1].lengths
    assert min(expected[1].lengths) < 18
    for t, listener in others:
        assert listener.lengths == expected[1].lengths
        assert t.counters.episodes == expected[0].counters.episodes == len(listener.lengths)


def test_ppo_treats_ends_as_chosen() -> None:
    """The return of an end is its reward plus γ times the value of the final state, if that is bootstrapped."""
    right, none, every = (ppo_rollout(choice) for choice in CHOICES)
    ends = right.terminated | right.truncated
    assert right.terminated.any()
    assert right.truncated.any()
    assert torch.equal(none.terminated, ends)
    assert not none.truncated.any()
    assert torch.equal(every.truncated, ends)
    assert not every.terminated.any()
    last = torch.zeros(4)
    gained = {
        name: kept.advantages(last, 0.9, 0.0)[1][ends] for name, kept in zip(CHOICES, (right, none, every), strict=True)
    }
    assert torch.equal(gained["none"], torch.ones(int(ends.sum())))  # the reward of CartPole
    torch.testing.assert_close(gained["every_end"], 1 + 0.9 * every.bootstrap[ends])
    torch.testing.assert_close(
        gained["truncation"], torch.where(right.truncated[ends], gained["every_end"], gained["none"])
    )
    assert every.bootstrap[ends].abs().min() > 0


@pytest.mark.parametrize("choice", CHOICES)
def test_dqn_treats_ends_as_chosen(choice: str) -> None:
    agent = instance(collected("dqn", f"bootstrap_at={choice}")[0].agent, Dqn)
    batch = agent.buffer.sample(2000)
    # A pole has fallen if its angle exceeds 12 degrees. Other ends are truncations.
    fallen = batch.next_obs[:, 2].abs() > 0.2095
    assert fallen.any()
    stopped = ~fallen & (batch.discount == 0)
    targets = agent.targets(batch, agent.target_q(batch.next_obs))
    bootstrapped = 1 + 0.99 * agent.target_q(batch.next_obs).max(-1).values
    if choice == "every_end":
        assert (batch.discount > 0).all()
        torch.testing.assert_close(targets, bootstrapped)
    else:
        assert (batch.discount[fallen] == 0).all()
        assert (targets[fallen] == 1).all()
        assert bool(stopped.any()) == (choice == "none")
        assert (targets[stopped] == 1).all()


def final_weights(run: Run) -> Any:
    last = checkpoint.latest(run.checkpoints)
    assert last is not None
    return checkpoint.load(last.path)[0]["training"]["agent"]["network"]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_resumed_run_ends_like_an_uninterrupted_one(agent: str, tmp_path: Path) -> None:
    loaded = small(agent, "bootstrap_at=none")
    whole = final_weights(start(loaded, tmp_path / "whole").run)
    interrupted = start(loaded, tmp_path / "interrupted", pause_at=256).run
    assert differing_leaves(whole, final_weights(interrupted))
    assert differing_leaves(whole, final_weights(resume(interrupted).run)) == []
    assert differing_leaves(whole, final_weights(start(small(agent), tmp_path / "right").run))


def test_rollouts_are_not_graphed_unless_only_truncations_are_bootstrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graphed rollout does not relabel ends; other choices are collected step by step."""
    monkeypatch.setattr(training, "can_graph", lambda *_: True)
    words = ("engine=torch", "rows=4", "threads=1", "network.hidden=[8, 8]", "agent.n_steps=8", "agent.batch_size=32")
    for choice in CHOICES:
        t = build_training(load_experiment("town:ppo", [*words, "agent.shared=true", f"bootstrap_at={choice}"]))
        assert (t.graphed is not None) == (choice == "truncation")
