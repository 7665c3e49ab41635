"""Switches and numbers as actions: ppo learns them, goes on to the bit, and shows what stands behind them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from agents.lives import Life, differences
from agents.toys import Bits, Target, Toy
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

torch.set_num_threads(1)
QUICK = {"lr": 1e-2, "n_steps": 8, "entropy_coef": 0.0}


def materials(env: Toy, seed: int = 1, recurrent: bool = False) -> AgentContext:
    network = MlpSpec(hidden=(32,), activation="tanh", recurrent=RecurrentSpec(size=8) if recurrent else None)
    return AgentContext(network, ExploreSpec(), env, Counters(budget=10_000), Streams(seed), 20)


def life(env: Toy, seed: int = 1, **settings: Any) -> tuple[Ppo, Life]:
    given = materials(env, seed)
    agent = Ppo(PpoSettings(**(QUICK | settings)), given)
    return agent, Life(agent, env, given.counters)


def pay(policy: Policy, env: Toy, greedy: bool = True) -> float:
    """Mean reward of one step in every row."""
    seen = env.reset(7)
    return float(env.step(policy.act(seen.obs, seen.mask, greedy=greedy)).reward.mean())


@pytest.mark.parametrize("toy", [Target, Bits])
def test_toys_keep_the_contract(toy: type[Toy]) -> None:
    conformance.check(toy)


@pytest.mark.parametrize("shared", [True, False])
def test_numbers_are_hit(shared: bool) -> None:
    agent, lived = life(Target(64), shared=shared)
    assert pay(agent.policy(), Target(200)) < -0.3
    figures = lived.go_on(8 * 60)
    assert pay(agent.policy(), Target(200)) > -0.02
    assert -0.3 < pay(agent.policy(), Target(200), greedy=False) < pay(agent.policy(), Target(200))
    assert 0.7 < figures[0]["action_std"] < 1
    assert figures[-1]["action_std"] < 0.4, "with nothing more to find it is sure of itself"
    assert "entropy" not in figures[0]
    assert all(math.isfinite(value) for told in figures for value in told.values())


def test_bits_are_matched() -> None:
    agent, lived = life(Bits(64))
    assert pay(agent.policy(), Bits(200)) < 2
    figures = lived.go_on(8 * 25)
    assert pay(agent.policy(), Bits(200)) == 3
    assert figures[0]["normalized_entropy"] > 0.95 > 0.3 > figures[-1]["normalized_entropy"]


@pytest.mark.parametrize("toy", [Target, Bits])
@pytest.mark.parametrize("settings", [{}, {"shared": False, "entropy_coef": 0.1}], ids=["shared", "apart"])
def test_train_stop_and_resume_gives_the_same_bits(toy: type[Toy], settings: dict[str, Any]) -> None:
    _, whole = life(toy(16), **settings)
    whole.go_on(8 * 2 + 3)
    saved = whole.state()
    figures = whole.go_on(8 * 2)
    _, resumed = life(toy(16), seed=99, **settings)
    resumed.go_on(5)
    resumed.restore(saved)
    assert resumed.go_on(8 * 2) == figures
    assert len(figures) == 2
    assert differences(whole.state(), resumed.state()) == []


def test_a_bonus_for_entropy_keeps_numbers_open() -> None:
    def left(entropy: float) -> float:
        return life(Target(64), entropy_coef=entropy)[1].go_on(8 * 20)[-1]["action_std"]

    assert left(1.0) > 1.1 > 0.9 > left(0.0)


def test_deviations_begin_where_they_are_told_to_and_means_near_nothing() -> None:
    agent, lived = life(Target(64), log_std=-1.0)
    seen = lived.seen
    shown = agent.policy().outputs(seen.obs)
    torch.testing.assert_close(shown["stds"], torch.full((64, 2), math.exp(-1)))
    assert shown["means"].abs().max() < 0.05
    assert isinstance(agent.network.actor.head, GaussianHead)
    drawn = agent.act(seen)
    assert drawn.shape == (64, 2)
    assert drawn.dtype == torch.float32


def test_numbers_are_drawn_beyond_the_bounds_and_told_as_drawn() -> None:
    """The environment cuts; what is stored is the draw and its own density."""
    agent, lived = life(Target(64), log_std=2.0)
    agent.update_interval = 10**9
    lived.go_on(8)
    kept = agent.rollout
    assert (kept.actions.abs() > 2).any()
    theirs = torch.distributions.Normal(torch.zeros(()), torch.tensor(math.exp(2.0)))
    torch.testing.assert_close(kept.log_prob, theirs.log_prob(kept.actions).sum(-1), atol=0.05, rtol=0)


@pytest.mark.parametrize("toy", [Target, Bits])
def test_what_stood_behind_acts_is_what_the_policy_shows(toy: type[Toy]) -> None:
    agent, lived = life(toy(6))
    behind, expected = [], []
    name = "means" if toy is Target else "probabilities"
    assert agent.output_label == name
    for _ in range(3):
        expected.append(agent.policy().outputs(lived.seen.obs)[name][:4])
        lived.go_on(1)
        behind.append(agent.action_outputs)
    torch.testing.assert_close(agent.describe_outputs(behind, 4), torch.stack(expected), atol=1e-6, rtol=0)
    openness: Tensor = agent.entropy()
    assert openness.shape == (6,)
    assert ((openness > 0.9) & (openness <= 1)).all()


@pytest.mark.parametrize(("toy", "kind"), [(Target, "continuous"), (Bits, "binary")])
def test_value_agents_refuse_continuous_and_binary_actions(toy: type[Toy], kind: str) -> None:
    with pytest.raises(TownletError, match=f"dqn needs discrete actions, but this environment.s are {kind}"):
        Dqn(DqnSettings(), materials(toy(2)))
    with pytest.raises(TownletError, match=r"drqn needs discrete actions.*use ppo"):
        Drqn(DrqnSettings(), materials(toy(2), recurrent=True))
