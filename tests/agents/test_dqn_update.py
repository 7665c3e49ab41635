"""Every switch of dqn changes the update as its paper says: cases small enough to compute by hand.

The network is a table: without layers below the head, column p of the head's weights is Q(p, ·) of the
one-hot place p, up to the bias. With plain gradient descent one update moves one entry, and the bias.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from agents.toy_envs import Chain
from townlet.agents.agent import AgentContext
from townlet.agents.dqn import Dqn, DqnSettings
from townlet.agents.networks import QNetwork
from townlet.buffers.prioritized import PrioritySpec
from townlet.buffers.replay import TransitionBatch
from townlet.explore.spec import CountsSpec, EpsilonSpec, ExploreSpec, ScheduledWeightSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.vec_env import FinalObs, MaskedObs, Step
from townlet.nets.spec import MlpSpec
from townlet.rng import Streams

LR = 0.125
BACK, ON = 0, 1
GREEDY = ExploreSpec(action_selection=EpsilonSpec(start=0.0, end=0.0))


def table_agent(explore: ExploreSpec = GREEDY, rows: int = 1, **switches: Any) -> Dqn:
    """An agent whose values are all zero, in both networks."""
    plain: dict[str, Any] = {
        "lr": LR,
        "gamma": 0.5,
        "batch_size": 4,
        "warmup": 1,
        "optimizer": "sgd",
        "max_grad_norm": None,
    }
    settings = DqnSettings(**(plain | {"double": False, "dueling": False, "target_every": 10**6} | switches))
    agent = Dqn(settings, AgentContext(MlpSpec(hidden=()), explore, Chain(rows), Counters(), Streams(1), 20))
    for network in (agent.network, agent.target_network):
        with torch.no_grad():
            for weight in network.parameters():
                weight.zero_()
    return agent


def head_of(network: QNetwork) -> tuple[Tensor, Tensor]:
    weight, bias = network.head.parameters()
    return weight, bias


def write(network: QNetwork, place: int, values: list[float]) -> None:
    """Set Q(place, ·)."""
    with torch.no_grad():
        head_of(network)[0][:, place] = torch.tensor(values)


def q(network: QNetwork, place: int) -> list[float]:
    """Read Q(place, ·)."""
    found: Tensor = network(at(place), network.initial_hidden(1))[0]
    return found[0].tolist()


def at(*places: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(places), 8).float()


def take_step(
    agent: Dqn,
    place: int,
    action: int,
    reward: float,
    reached: int,
    *,
    end: str = "",
    valid: tuple[bool, bool] = (True, True),
) -> None:
    """One transition of a single row; the end is "", "terminated" or "truncated". The next episode begins at 0."""
    only = torch.tensor([[action == BACK, action == ON]])
    assert agent.act(MaskedObs(at(place), only)).tolist() == [action]
    over, mask = torch.tensor([bool(end)]), torch.tensor([valid])
    mean_reward = torch.tensor([reward])
    shown = at(0) if end else at(reached)
    step = Step(
        shown,
        torch.ones_like(mask) if end else mask,
        mean_reward,
        mean_reward[:, None],
        over & (end == "terminated"),
        over & (end == "truncated"),
    )
    rows = torch.nonzero(over).squeeze(1)
    agent.observe(step, FinalObs(rows, at(reached)[rows], mask[rows]))


def batch_of(
    reward: float, reached: int, mask: list[bool], discount: float = 0.5, importance: float = 1.0
) -> TransitionBatch:
    return TransitionBatch(
        obs=at(0),
        actions=torch.tensor([ON]),
        reward=torch.tensor([reward]),
        next_obs=at(reached),
        next_mask=torch.tensor([mask]),
        discount=torch.tensor([discount]),
        index=torch.tensor([0]),
        importance=torch.tensor([importance]),
    )


def targets(agent: Dqn, batch: TransitionBatch) -> list[float]:
    found: list[float] = agent.targets(batch, agent.target_q(batch.next_obs)).tolist()
    return found


@pytest.mark.parametrize(("double", "expected"), [(False, 1 + 0.5 * 5), (True, 1 + 0.5 * 3)])
def test_double_dqn_selects_online_and_evaluates_with_the_target(double: bool, expected: float) -> None:
    agent = table_agent(double=double)
    write(agent.network, 2, [1.0, 2.0])  # picks ON
    write(agent.target_network, 2, [5.0, 3.0])  # values it 3, its own best is 5
    assert targets(agent, batch_of(1.0, 2, [True, True])) == [expected]


@pytest.mark.parametrize("double", [False, True])
def test_invalid_next_action_is_never_the_max(double: bool) -> None:
    agent = table_agent(double=double)
    write(agent.network, 2, [9.0, -2.0])
    write(agent.target_network, 2, [7.0, -4.0])
    assert targets(agent, batch_of(1.0, 2, [False, True])) == [1 - 0.5 * 4]


@pytest.mark.parametrize(("end", "expected"), [("", 1 + 0.5 * 6), ("truncated", 1 + 0.5 * 6), ("terminated", 1.0)])
def test_truncation_bootstraps_from_the_final_observation_and_termination_does_not(end: str, expected: float) -> None:
    agent = table_agent()
    write(agent.target_network, 3, [6.0, 2.0])
    write(agent.target_network, 0, [100.0, 100.0])  # the start of the next episode: must not matter
    take_step(agent, 2, ON, 1.0, 3, end=end)
    assert targets(agent, agent.buffer.sample(4)) == [expected] * 4


def test_truncated_episode_uses_the_mask_of_its_final_observation() -> None:
    agent = table_agent()
    write(agent.target_network, 3, [6.0, 2.0])
    take_step(agent, 2, ON, 1.0, 3, end="truncated", valid=(False, True))
    assert targets(agent, agent.buffer.sample(4)) == [1 + 0.5 * 2] * 4


def test_one_update_moves_one_value_towards_its_target() -> None:
    agent = table_agent()
    write(agent.network, 2, [0.0, 1.0])
    take_step(agent, 2, ON, 3.0, 3, end="terminated")
    history = agent.learn()
    assert history is not None
    assert history["loss"] == 4.0
    assert history["td_error"] == 2.0
    assert history["mean_q"] == 1.0
    # δ = −2, ∂δ²/∂w = −4 for the entry and the same for the bias, each moved by LR · 4
    assert history["grad_norm"] == pytest.approx(32**0.5)
    weight, bias = head_of(agent.network)
    assert weight[ON, 2].item() == 1 + 4 * LR
    assert bias.tolist() == [0.0, 4 * LR]
    assert q(agent.network, 2) == [0.0, 1 + 8 * LR]


def test_huber_loss_limits_the_gradient_of_a_large_error() -> None:
    moved = {}
    for loss in ("mse", "huber"):
        agent = table_agent(loss=loss)
        take_step(agent, 2, ON, 3.0, 3, end="terminated")
        history = agent.learn()
        assert history is not None
        moved[loss] = (history["loss"], head_of(agent.network)[0][ON, 2].item())
    assert moved == {"mse": (9.0, 6 * LR), "huber": (2.5, 1 * LR)}


def test_gradient_is_clipped_and_its_norm_reported_unclipped() -> None:
    agent = table_agent(max_grad_norm=0.5)
    take_step(agent, 2, ON, 3.0, 3, end="terminated")
    history = agent.learn()
    assert history is not None
    assert history["grad_norm"] == pytest.approx(72**0.5)
    moved = torch.stack([head_of(agent.network)[0][ON, 2], head_of(agent.network)[1][ON]])
    assert moved.norm().item() == pytest.approx(0.5 * LR, rel=1e-5)


def test_target_network_is_copied_every_m_updates() -> None:
    agent = table_agent(target_every=3, lr=0.0625)
    take_step(agent, 2, ON, 3.0, 3, end="terminated")
    observed = []
    for _ in range(6):
        agent.learn()
        observed.append((q(agent.target_network, 2)[ON], q(agent.network, 2)[ON]))
    frozen, values = zip(*observed, strict=True)
    assert frozen == (0.0, 0.0, values[2], values[2], values[2], values[5])
    assert values[5] > values[2] > 0


def test_polyak_moves_the_target_by_a_fraction_at_every_update() -> None:
    agent = table_agent(polyak=0.25, target_every=1)
    take_step(agent, 2, ON, 3.0, 3, end="terminated")
    expected = 0.0
    for _ in range(3):
        agent.learn()
        expected += 0.25 * (head_of(agent.network)[0][ON, 2].item() - expected)
        assert head_of(agent.target_network)[0][ON, 2].item() == pytest.approx(expected, rel=1e-6)
    assert expected > 0


def test_n_step_sums_rewards_and_stops_at_an_episode_end() -> None:
    agent = table_agent(n_step=2)
    for place in range(8):
        write(agent.target_network, place, [16.0, 16.0])
    for place, reward, end in ((1, 1.0, ""), (2, 2.0, ""), (3, 4.0, "terminated"), (1, 8.0, ""), (2, 3.0, "truncated")):
        take_step(agent, place, ON, reward, place + 1, end=end)
    batch = agent.buffer.sample(200)
    found = {(p, y) for p, y in zip(batch.obs.argmax(1).tolist(), targets(agent, batch), strict=True)}
    assert found == {
        (1, 1 + 0.5 * 2 + 0.25 * 16),
        (2, 2 + 0.5 * 4),
        (3, 4.0),
        (1, 8 + 0.5 * 3 + 0.25 * 16),
        (2, 3 + 0.5 * 16),
    }


def test_importance_weights_scale_the_loss_and_priorities_follow_the_errors() -> None:
    agent = table_agent(prioritized=PrioritySpec(alpha=1.0, beta=1.0), batch_size=64, lr=1e-9)
    take_step(agent, 1, ON, 0.5, 2, end="terminated")
    take_step(agent, 2, ON, 2.0, 3, end="terminated")
    agent.learn()  # both are equally likely before their errors are known
    twin = table_agent(prioritized=PrioritySpec(alpha=1.0, beta=1.0), batch_size=64)
    twin.restore(agent.state())
    batch = twin.buffer.sample(64, 0.0, 1.0)
    errors = torch.where(batch.obs[:, 1] == 1, 0.5, 2.0)
    history = agent.learn()
    assert history is not None
    assert history["loss"] == pytest.approx((batch.importance * errors.square()).mean().item(), rel=1e-5)
    # drawn in proportion to their errors, 4 : 1, and weighted 1 : 4 to correct for it
    assert 0.65 < (errors == 2.0).float().mean() < 0.95
    assert batch.importance[errors == 2.0].mean() == pytest.approx(0.25, rel=1e-3)
    assert batch.importance[errors == 0.5].mean() == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("weight", [0.25, 2.0])
def test_intrinsic_weight_is_applied_once(weight: float) -> None:
    explore = ExploreSpec(
        action_selection=GREEDY.action_selection, bonus=CountsSpec(), weight=ScheduledWeightSpec(value=weight)
    )
    agent = table_agent(explore, reward_scale=0.5)
    take_step(agent, 2, ON, 3.0, 3, end="terminated")
    assert agent.intrinsic.tolist() == [1.0]  # 1 / √1: the first visit
    history = agent.learn()
    assert history is not None
    assert history["td_error"] == pytest.approx(0.5 * 3 + weight * 1.0)
    assert history["intrinsic_weight"] == weight


def test_dueling_is_the_value_plus_centered_advantages() -> None:
    agent = table_agent(dueling=True)
    with torch.no_grad():
        head_of(agent.network)[1].copy_(torch.tensor([3.0, 1.0, 5.0]))  # V, A(back), A(on)
    assert q(agent.network, 4) == [3 + 1 - 3, 3 + 5 - 3]
