"""Binary and continuous actions: ppo learns them, resumes bit for bit and reports their outputs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from agents.toy_envs import Bits, Target, ToyEnv
from agents.training_loop import TrainingLoop, differing_leaves
from townlet.agents.agent import AgentContext
from townlet.agents.dqn import Dqn, DqnSettings
from townlet.agents.drqn import Drqn, DrqnSettings
from townlet.agents.policy import Policy
from townlet.agents.ppo import Ppo, PpoSettings
from townlet.errors import TownletError
from townlet.explore.spec import ExploreSpec
from townlet.interfaces import conformance
from townlet.interfaces.counters import Counters
from townlet.nets.layers import GaussianHead
from townlet.nets.spec import MlpSpec, RecurrentSpec
from townlet.rng import Streams

QUICK = {"lr": 1e-2, "n_steps": 8, "entropy_coef": 0.0}


def make_context(env: ToyEnv, seed: int = 1, recurrent: bool = False) -> AgentContext:
    network = MlpSpec(hidden=(32,), activation="tanh", recurrent=RecurrentSpec(size=8) if recurrent else None)
    return AgentContext(network, ExploreSpec(), env, Counters(budget=10_000), Streams(seed), 20)


def make_loop(env: ToyEnv, seed: int = 1, **settings: Any) -> tuple[Ppo, TrainingLoop]:
    given = make_context(env, seed)
    agent = Ppo(PpoSettings(**(QUICK | settings)), given)
    return agent, TrainingLoop(agent, env, given.counters)


def mean_reward(policy: Policy, env: ToyEnv, greedy: bool = True) -> float:
    """Mean reward of one step in every row."""
    observed = env.reset(7)
    return float(env.step(policy.act(observed.obs, observed.mask, greedy=greedy)).reward.mean())


@pytest.mark.parametrize("toy", [Target, Bits])
def test_toy_envs_conform(toy: type[ToyEnv], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "STEPS", 48)  # two episodes
    conformance.check(toy)


@pytest.mark.parametrize("shared", [True, False])
def test_continuous_actions_are_learned(shared: bool) -> None:
    agent, loop = make_loop(Target(64), shared=shared)
    assert mean_reward(agent.policy(), Target(200)) < -0.3

    def check() -> None:
        assert mean_reward(agent.policy(), Target(200)) > -0.02
        assert -0.3 < mean_reward(agent.policy(), Target(200), greedy=False) < mean_reward(agent.policy(), Target(200))
        assert float(agent.policy().outputs(loop.obs.obs)["stds"].max()) < 0.4, "a policy that has converged is certain"

    history = loop.run_until(check, 8 * 60)
    assert 0.7 < history[0]["action_std"] < 1
    assert history[-1]["action_std"] < history[0]["action_std"]
    assert "entropy" not in history[0]
    assert all(math.isfinite(value) for metrics in history for value in metrics.values())


def test_binary_actions_are_learned() -> None:
    agent, loop = make_loop(Bits(64))
    assert mean_reward(agent.policy(), Bits(200)) < 2

    def check() -> None:
        assert mean_reward(agent.policy(), Bits(200)) == 3
        assert float(agent.entropy().mean()) < 0.3

    history = loop.run_until(check, 8 * 30)
    assert history[0]["normalized_entropy"] > 0.95 > 0.5 > history[-1]["normalized_entropy"]


@pytest.mark.parametrize("toy", [Target, Bits])
@pytest.mark.parametrize("settings", [{}, {"shared": False, "entropy_coef": 0.1}], ids=["shared", "apart"])
def test_resume_is_bit_identical(toy: type[ToyEnv], settings: dict[str, Any]) -> None:
    _, whole = make_loop(toy(16), **settings)
    whole.run(8 * 2 + 3)
    saved = whole.state()
    history = whole.run(8 * 2)
    _, resumed = make_loop(toy(16), seed=99, **settings)
    resumed.run(5)
    resumed.restore(saved)
    assert resumed.run(8 * 2) == history
    assert len(history) == 2
    assert differing_leaves(whole.state(), resumed.state()) == []


def test_entropy_bonus_keeps_continuous_actions_stochastic() -> None:
    def left(entropy: float) -> float:
        return make_loop(Target(64), entropy_coef=entropy)[1].run(8 * 8)[-1]["action_std"]

    assert left(1.0) > 1.1 > 0.9 > left(0.0)


def test_initial_stds_match_the_setting_and_means_are_near_zero() -> None:
    agent, loop = make_loop(Target(64), log_std=-1.0)
    observed = loop.obs
    shown = agent.policy().outputs(observed.obs)
    torch.testing.assert_close(shown["stds"], torch.full((64, 2), math.exp(-1)))
    assert shown["means"].abs().max() < 0.05
    assert isinstance(agent.network.actor.head, GaussianHead)
    drawn = agent.act(observed)
    assert drawn.shape == (64, 2)
    assert drawn.dtype == torch.float32


def test_actions_beyond_the_bounds_are_stored_unclipped() -> None:
    """The environment clips; the rollout stores the sampled action and its density."""
    agent, loop = make_loop(Target(64), log_std=2.0)
    agent.update_interval = 10**9
    loop.run(8)
    kept = agent.rollout
    assert (kept.actions.abs() > 2).any()
    theirs = torch.distributions.Normal(torch.zeros(()), torch.tensor(math.exp(2.0)))
    torch.testing.assert_close(kept.log_prob, theirs.log_prob(kept.actions).sum(-1), atol=0.05, rtol=0)


@pytest.mark.parametrize("toy", [Target, Bits])
def test_action_outputs_match_the_outputs_of_the_policy(toy: type[ToyEnv]) -> None:
    agent, loop = make_loop(toy(6))
    outputs, expected = [], []
    name = "means" if toy is Target else "probabilities"
    assert agent.output_label == name
    for _ in range(3):
        expected.append(agent.policy().outputs(loop.obs.obs)[name][:4])
        loop.run(1)
        outputs.append(agent.action_outputs)
    torch.testing.assert_close(agent.describe_outputs(outputs, 4), torch.stack(expected), atol=1e-6, rtol=0)
    entropy: Tensor = agent.entropy()
    assert entropy.shape == (6,)
    assert ((entropy > 0.9) & (entropy <= 1)).all()


@pytest.mark.parametrize(("toy", "kind"), [(Target, "continuous"), (Bits, "binary")])
def test_value_agents_reject_continuous_and_binary_actions(toy: type[ToyEnv], kind: str) -> None:
    with pytest.raises(TownletError, match=f"dqn needs discrete actions, but this environment.s are {kind}"):
        Dqn(DqnSettings(), make_context(toy(2)))
    with pytest.raises(TownletError, match=r"drqn needs discrete actions.*use ppo"):
        Drqn(DrqnSettings(), make_context(toy(2), recurrent=True))
