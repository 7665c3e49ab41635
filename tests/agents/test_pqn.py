"""pqn learns a chain from λ-returns, resumes bit for bit, and rejects recurrent networks."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from agents.toy_envs import Chain
from agents.training_loop import TrainingLoop, differing_leaves, rollout_obs, success_rate
from narrow import instance
from townlet.agents import pqn
from townlet.agents.agent import AgentContext
from townlet.agents.pqn import Pqn, PqnSettings
from townlet.config.schedule import Schedule
from townlet.errors import TownletError
from townlet.explore.spec import AdaptiveWeightSpec, BoltzmannSpec, EpsilonSpec, ExploreSpec, RndSpec
from townlet.interfaces.counters import Counters
from townlet.nets.spec import MlpSpec, RecurrentSpec
from townlet.rng import Streams

QUICK = {"lr": 3e-3, "gamma": 0.9, "n_steps": 8, "batch_size": 0.5}
RND = ExploreSpec(bonus=RndSpec(hidden=(16,), embedding_size=8), weight=AdaptiveWeightSpec(episodes=2, mean=1.0))


def make_loop(
    seed: int = 1, explore: ExploreSpec | None = None, network: MlpSpec | None = None, **settings: Any
) -> TrainingLoop:
    explore = explore or ExploreSpec(action_selection=EpsilonSpec(decay=0.95, end=0.05))
    env, counters = Chain(8), Counters(budget=10_000)
    network = network or MlpSpec(hidden=(32,), layer_norm=True)
    agent = Pqn(PqnSettings(**(QUICK | settings)), AgentContext(network, explore, env, counters, Streams(seed), 20))
    return TrainingLoop(agent, env, counters)


@pytest.mark.parametrize(
    "settings",
    [{}, {"loss": "mse", "dueling": True, "q_lambda": 0.0}, {"q_lambda": 1.0, "epochs": 1, "batch_size": 1.0}],
    ids=["default", "one step", "whole returns"],
)
def test_chain_is_learned(settings: dict[str, Any]) -> None:
    loop = make_loop(**settings)
    assert success_rate(loop.agent.policy(), Chain(16)) < 0.9

    def check() -> None:
        at_goal = loop.agent.policy().outputs(torch.eye(8)[6:7])["values"]
        assert at_goal[0, 1].item() == pytest.approx(1.0, abs=0.1)  # it terminates there with reward 1
        assert success_rate(loop.agent.policy(), Chain(16)) == 1.0

    loop.run_until(check, 800)


@torch.no_grad()
def best_of(agent: Pqn, obs: Tensor, mask: Tensor) -> Tensor:
    values: Tensor = agent.network(obs, agent.network.initial_hidden(0))[0]
    return values.masked_fill(~mask, -torch.inf).max(1).values


def test_targets_are_lambda_returns() -> None:
    """By their definition, backwards: G = r + γ [(1 − λ) max Q(s′) + λ G′], and r alone at an end."""
    loop = make_loop(epochs=1, batch_size=1.0)
    agent = loop.agent
    assert isinstance(agent, Pqn)
    with torch.no_grad():  # going back looks best, even at position 0, where it is invalid
        instance(agent.network.head, nn.Linear).bias[0] += 5.0
    rollout, trace, gamma = agent.rollout, agent.settings.q_lambda, agent.settings.gamma
    with patch.object(agent, "learn", return_value=None) as learning:
        loop.run(8)
    assert learning.called
    obs, mask, rewards = rollout_obs(rollout), rollout.mask.clone(), rollout.reward.clone()
    over, cut, bootstrap = rollout.terminated.clone(), rollout.truncated.clone(), rollout.bootstrap.clone()
    best, follow = best_of(agent, obs.flatten(0, 1), mask.flatten(0, 1)).view(8, 8), best_of(agent, *loop.obs)
    wanted = torch.zeros(8, 8)
    later = follow
    for step in reversed(range(8)):
        value = best[step + 1] if step < 7 else follow
        reached = torch.where(cut[step], bootstrap[step], (1 - trace) * value + trace * later)
        later = wanted[step] = rewards[step] + gamma * torch.where(over[step], torch.zeros(8), reached)
    with torch.no_grad():
        values = agent.network(obs.flatten(0, 1), agent.network.initial_hidden(0))[0]
    chosen = values.gather(1, rollout.actions.view(-1, 1)).view(8, 8)
    metrics = agent.learn()
    assert metrics is not None
    torch.testing.assert_close(rollout._returns, wanted, atol=1e-5, rtol=1e-5)
    assert metrics["td_error"] == pytest.approx((chosen - wanted).abs().mean().item(), rel=1e-4)
    assert (~mask[1:] & (values.view(8, 8, 2)[1:] == values.view(8, 8, 2)[1:].amax(-1, keepdim=True))).any()


def test_only_truncated_episodes_bootstrap_and_from_their_final_observation() -> None:
    loop = make_loop(n_steps=60)
    agent = loop.agent
    assert isinstance(agent, Pqn)
    agent.update_interval = 10**9
    loop.run(60)
    kept = agent.rollout
    assert kept.terminated.any()
    assert kept.truncated.any()
    assert not kept.bootstrap[~kept.truncated].any()
    place = (rollout_obs(kept).argmax(-1) + 2 * kept.actions - 1).clamp(0, 7)[kept.truncated]
    mask = torch.stack((place > 0, torch.ones_like(place, dtype=torch.bool)), 1)
    value = best_of(agent, torch.nn.functional.one_hot(place, 8).float(), mask)
    torch.testing.assert_close(kept.bootstrap[kept.truncated], value)


def test_microbatches_give_the_gradient_of_the_whole_minibatch(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = (make_loop(optimizer="sgd", lr=0.1, batch_size=30) for _ in range(2))
    metrics = whole.run(16)
    monkeypatch.setattr(pqn, "microbatch_size", lambda device: 7)
    assert len(metrics) == 2
    for one, other in zip(metrics, parts.run(16), strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6)
    for name, weight in parts.agent.parameters().items():
        torch.testing.assert_close(weight, whole.agent.parameters()[name], atol=1e-6, rtol=0, msg=name)


@pytest.mark.parametrize(
    ("explore", "settings"),
    [
        (None, {}),
        (RND, {"lr": Schedule(start=1e-2, end=1e-4), "optimizer": "adamw"}),
        (ExploreSpec(action_selection=BoltzmannSpec(temperature=0.2)), {"loss": "mse"}),
    ],
    ids=["default", "rnd", "boltzmann"],
)
def test_resume_is_bit_identical(explore: ExploreSpec | None, settings: dict[str, Any]) -> None:
    whole = make_loop(explore=explore, **settings)
    whole.run(29)  # in the middle of a rollout
    saved = whole.state()
    history = whole.run(29)
    resumed = make_loop(seed=99, explore=explore, **settings)
    resumed.run(7)
    resumed.restore(saved)
    assert resumed.run(29) == history
    assert len(history) >= 3
    assert differing_leaves(whole.state(), resumed.state()) == []


def test_update_reports_its_metrics() -> None:
    history = make_loop(explore=RND).run(40)[-1]
    assert history.keys() == {
        "loss", "td_error", "mean_q", "grad_norm", "grad_norm_body", "grad_norm_head", "dead_units", "epsilon",
        "intrinsic_weight", "lr", "rnd_loss", "intrinsic_reward",
    }  # fmt: skip


def test_recurrent_network_is_rejected() -> None:
    with pytest.raises(TownletError, match="pqn cannot train a recurrent network; use drqn"):
        make_loop(network=MlpSpec(hidden=(8,), recurrent=RecurrentSpec(size=8)))
