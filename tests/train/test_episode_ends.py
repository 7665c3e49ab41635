"""Details that trainers of Gymnasium environments often get wrong: episode ends, evaluations, normalization, resume.

The dynamics of CartPole are simple, so tests compute the next observation themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gym_envs.unsavable import ID
from townlet.agents.agent import no_interrupt
from townlet.agents.dqn import Dqn
from townlet.agents.ppo import Ppo
from townlet.gym.make import make_vec
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader
from townlet.tasks.evaluation import run_episodes
from townlet.tasks.experiment import LoadedExperiment, load_experiment, reopen
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.session import resume, start
from townlet.train.training import Training, build_training
from train.tiny import RecordingSink

VECTORIZATIONS = ("native", "sync")  # with and without autoreset steps
SMALL = (
    "threads=1", "rows=4", "network.hidden=[16]", "evaluation={episodes: 10, every: 256}", "env_steps=1024",
    "metrics={every: 256, tensorboard: false, report: false}",
)  # fmt: skip
RECURRENT = ("network={hidden: [16], recurrent: {size: 8}}", "gym.vectorization=sync")
AGENTS = {
    "ppo": ("CartPole-v1:ppo", "agent.n_steps=32", "agent.epochs=4", "agent.lr=1e-2", "gym.normalize_obs=running"),
    "dqn": ("CartPole-v1:dqn", "agent.warmup=100", "agent.lr=1e-2", "agent.n_step=1", "agent.reward_scale=1",
            "agent.gradient_steps=4"),
    "drqn": ("CartPole-v1:dqn", "agent={name: drqn, warmup: 200, sequence_length: 8, lr: 1e-2}", *RECURRENT),
    "reinforce": ("CartPole-v1:ppo", "agent={name: reinforce, episodes: 4, lr: 1e-2}"),
    "qlearning": ("FrozenLake-v1:qlearning", "agent.lr=0.5", "evaluation.episodes=100"),
}  # fmt: skip


def small(agent: str, *words: str) -> LoadedExperiment:
    recipe, *own = AGENTS[agent]
    return load_experiment(recipe, [*SMALL, *own, *words])


def collected(agent: str, steps: int, *words: str) -> Training:
    """A training that has collected steps but has not learned yet."""
    t = build_training(small(agent, "gym.normalize_obs=none", *words))
    collect(t, steps, NullListener())
    return t


def next_obs(obs: Tensor, actions: Tensor) -> Tensor:
    """Next observations [B, 4] after observations [B, 4] and actions [B], by the dynamics of Barto et al. (1983)."""
    x, speed, angle, turn = obs.double().unbind(-1)
    push = 20.0 * actions - 10.0
    pull = (push + 0.05 * turn**2 * angle.sin()) / 1.1
    turning = (9.8 * angle.sin() - angle.cos() * pull) / (0.5 * (4 / 3 - 0.1 * angle.cos() ** 2 / 1.1))
    speeding = pull - 0.05 * turning * angle.cos() / 1.1
    after = x + 0.02 * speed, speed + 0.02 * speeding, angle + 0.02 * turn, turn + 0.02 * turning
    return torch.stack(after, -1).float()


@pytest.mark.parametrize("vectorization", VECTORIZATIONS)
def test_ppo_bootstraps_from_the_final_observation_of_a_truncated_episode(vectorization: str) -> None:
    t = collected("ppo", 32, f"gym.vectorization={vectorization}", "gym.max_episode_steps=5")
    assert isinstance(t.agent, Ppo)
    rollout, network = t.agent.rollout, t.agent.network
    cut = rollout.truncated
    assert int(cut.sum()) >= 20
    with torch.no_grad():
        before = rollout.gather(cut.flatten().nonzero().squeeze(1))
        last = next_obs(before.obs, before.actions)
        value = network(last, network.initial_hidden(len(last)))[1]
    torch.testing.assert_close(rollout.bootstrap[cut], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("vectorization", VECTORIZATIONS)
def test_dqn_bootstraps_from_the_final_observation_of_a_truncated_episode(vectorization: str) -> None:
    t = collected("dqn", 60, f"gym.vectorization={vectorization}", "gym.max_episode_steps=5")
    assert isinstance(t.agent, Dqn)
    drawn = t.agent.buffer.sample(400)
    assert (drawn.discount > 0).all()  # truncated, not terminated
    torch.testing.assert_close(drawn.next_obs, next_obs(drawn.obs, drawn.actions), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("vectorization", VECTORIZATIONS)
def test_no_transition_across_a_reset_is_learned_from(vectorization: str) -> None:
    """Every real step has reward 1 and follows from the one before; an autoreset step does not."""
    t = collected("dqn", 100, f"gym.vectorization={vectorization}")
    assert t.counters.episodes > 8
    assert isinstance(t.agent, Dqn)
    drawn = t.agent.buffer.sample(1000)
    assert (drawn.reward == 1).all()
    torch.testing.assert_close(drawn.next_obs, next_obs(drawn.obs, drawn.actions), atol=1e-5, rtol=1e-4)
    t = collected("ppo", 100, f"gym.vectorization={vectorization}", "agent.n_steps=100")
    assert isinstance(t.agent, Ppo)
    rollout = t.agent.rollout
    assert (rollout.without_autoreset_steps(rollout.reward) == 1).all()
    advantage, returns = rollout.advantages(torch.zeros(4), 1.0, 1.0)
    ends = rollout.terminated  # no value is bootstrapped after a termination
    torch.testing.assert_close(returns[ends], torch.ones(int(ends.sum())))
    torch.testing.assert_close(advantage[ends], 1 - rollout.value[ends])


def evaluate_checkpoint(run: Run, found: checkpoint.Checkpoint) -> tuple[float, int]:
    """Score and number of episodes of an evaluation of a checkpoint, restored into a new training."""
    loaded = reopen(run)
    t = build_training(loaded)
    t.restore(checkpoint.load(found.path)[0]["training"])
    measured = loaded.task.evaluate(t.agent.policy(), loaded.recipe, no_interrupt)
    return measured.score(loaded.recipe.metric), len(measured.returns)


@pytest.mark.parametrize(
    "agent", [pytest.param(name, marks=pytest.mark.long if name in ("drqn", "reinforce") else ()) for name in AGENTS]
)
def test_evaluations_use_the_current_weights_and_checkpoints_score_as_recorded(agent: str, tmp_path: Path) -> None:
    loaded = small(agent)
    run = start(loaded, tmp_path).run
    best, last = checkpoint.best(run.checkpoints), checkpoint.latest(run.checkpoints)
    assert best is not None
    assert last is not None
    with MetricsReader(run.metrics_file) as store:
        reported = store.read("evaluations", ("env_steps", "score", "episodes"), where={"policy": "greedy"})
    recorded = dict(zip(reported["env_steps"], reported["score"], strict=True))
    assert len(recorded) == 4
    assert best.info["score"] == max(recorded.values())
    assert len({*recorded.values()}) > 1, "else old weights would score the same"
    for found in (best, last):
        score, episodes = evaluate_checkpoint(run, found)
        assert score == recorded[found.env_steps] == found.info["score"]
        assert [episodes] * 4 == reported["episodes"] == [loaded.recipe.evaluation.episodes] * 4


class UnevenPolicy:
    """The first two poles fall at once; the others are balanced."""

    def reset(self, rows: int) -> None: ...

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        actions = (obs[:, 2] + obs[:, 3] > 0).long()
        actions[:2] = 0
        return actions


@pytest.mark.parametrize(("episodes", "short"), [(8, 4), (6, 4), (5, 3)])
def test_short_episodes_are_not_overcounted(episodes: int, short: int) -> None:
    found: Mapping[str, Any] = run_episodes(UnevenPolicy(), make_vec("CartPole-v1", None, 4), episodes, 7)
    assert len(found["length"]) == episodes
    assert int((found["length"] < 20).sum()) == short
    assert np.array_equal(found["length"], found["returns"])


@pytest.mark.parametrize("vectorization", VECTORIZATIONS)
def test_normalization_is_restored_on_resume(vectorization: str, tmp_path: Path) -> None:
    loaded = small("ppo", f"gym.vectorization={vectorization}")
    run = start(loaded, tmp_path, pause_at=512).run
    last = checkpoint.latest(run.checkpoints)
    assert last is not None
    known = checkpoint.load(last.path)[0]["training"]["env"]["transforms"]["0"]
    fresh = build_training(loaded)
    fresh.restore(checkpoint.load(last.path)[0]["training"])
    now = fresh.env.state()["transforms"]["0"]
    assert now["count"] == known["count"] >= 512
    assert np.array_equal(now["mean"], known["mean"])
    assert fresh.obs.obs.abs().mean() > 0.2  # without normalization, values near the start are close to 0


def test_resume_reports_an_environment_that_cannot_be_saved(tmp_path: Path) -> None:
    sink = RecordingSink()
    words = ("agent.n_steps=16", "gym.normalize_obs=none", "gym.max_episode_steps=20")
    loaded = load_experiment(f"{ID}:ppo", [*SMALL, "env_steps=256", *words])
    run = start(loaded, tmp_path, pause_at=128).run
    resume(run, sinks=[sink])
    said = "New episodes start: Unsavable-v0 cannot be saved in the middle of one"
    assert [note for note in sink.messages if note.startswith(said)]
    assert run.meta()["finished"]
