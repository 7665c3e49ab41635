"""qlearning: a table of values, learned from all rows at once, that resumes bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from agents.toy_envs import Bits, Chain, Target, ToyEnv
from agents.training_loop import TrainingLoop, differing_leaves, success_rate
from townlet.agents.agent import AgentContext
from townlet.agents.qlearning import QLearning, QLearningSettings
from townlet.errors import TownletError
from townlet.explore.spec import BoltzmannSpec, CountsSpec, EpsilonSpec, ExploreSpec, ScheduledWeightSpec
from townlet.interfaces import conformance
from townlet.interfaces.counters import Counters
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import FinalObs, MaskedObs, Step
from townlet.nets.spec import MlpSpec
from townlet.rng import Streams

QUICK = {"lr": 0.3, "gamma": 0.9}
COUNTED = ExploreSpec(bonus=CountsSpec(), weight=ScheduledWeightSpec(value=0.1))


class IndexChain(Chain):
    """The chain with a position index, from 3 on, as observation."""

    layout = ObservationLayout.of(("place", (1,), 3.0, 10.0, "index"))

    def _observe(self) -> MaskedObs:
        return MaskedObs(self._position.unsqueeze(1).float() + 3, super()._observe().mask)


class AutoresetIndexChain(IndexChain):
    """The same with autoreset steps."""

    autoreset_steps = True


def make_loop(
    env: ToyEnv | None = None, seed: int = 1, explore: ExploreSpec | None = None, **settings: Any
) -> TrainingLoop:
    env, counters = env or IndexChain(8), Counters(budget=10_000)
    explore = explore or ExploreSpec(action_selection=EpsilonSpec(decay=0.95, end=0.05))
    given = AgentContext(MlpSpec(), explore, env, counters, Streams(seed), 20)
    return TrainingLoop(QLearning(QLearningSettings(**(QUICK | settings)), given), env, counters)


def agent_of(loop: TrainingLoop) -> QLearning:
    assert isinstance(loop.agent, QLearning)
    return loop.agent


@pytest.mark.parametrize("toy", [IndexChain, AutoresetIndexChain])
def test_toy_envs_conform(toy: type[ToyEnv], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "STEPS", 48)  # two episodes
    conformance.check(toy)


@pytest.mark.parametrize(
    ("toy", "explore", "settings"),
    [
        (IndexChain, None, {}),
        (IndexChain, None, {"double": True}),
        (AutoresetIndexChain, None, {}),
        (IndexChain, ExploreSpec(action_selection=EpsilonSpec(start=0.0, end=0.0)), {"initial_q": 2.0}),
        (IndexChain, ExploreSpec(action_selection=BoltzmannSpec(temperature=0.1)), {}),
    ],
    ids=["plain", "double", "late", "optimistic", "boltzmann"],
)
def test_chain_is_learned(toy: type[ToyEnv], explore: ExploreSpec | None, settings: dict[str, Any]) -> None:
    loop = make_loop(toy(8), explore=explore, **settings)
    policy = loop.agent.policy()
    assert success_rate(policy, IndexChain(16)) < 0.9

    def check() -> None:
        # The goal is one step from position 6 and gives reward 1; each earlier position is worth γ times as much.
        shown = policy.outputs(torch.arange(3.0, 10.0).unsqueeze(1))["values"]
        assert shown[6, 1].item() == pytest.approx(1.0, abs=0.01)
        assert shown[3, 1].item() == pytest.approx(0.9**3, abs=0.02)
        assert success_rate(policy, IndexChain(16)) == 1.0

    loop.run_until(check, 1500)


NO_ENDS = FinalObs(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 1), torch.zeros(0, 2, dtype=torch.bool))


def steps(
    agent: QLearning, before: list[float], after: list[float], reward: list[float], ended: FinalObs = NO_ENDS,
    **more: Tensor,
) -> None:  # fmt: skip
    """One step of all rows, in which the second action was taken."""
    rows = len(before)
    agent._mask.fill_(True)
    agent._state = agent.network.states(torch.tensor(before).unsqueeze(1))
    agent._actions = torch.ones(rows, dtype=torch.int64)
    no = torch.zeros(rows, dtype=torch.bool)
    mask, mean_reward = torch.ones(rows, 2, dtype=torch.bool), torch.tensor(reward)
    step = Step(torch.tensor(after).unsqueeze(1), mask, mean_reward, mean_reward.unsqueeze(1), no, no)._replace(**more)
    agent.observe(step, ended)


def test_update_by_hand() -> None:
    agent = agent_of(make_loop(IndexChain(2), lr=0.5))
    table = agent.network.table[0]
    table[4] = torch.tensor([3.0, 2.0])
    steps(agent, [5.0, 6.0], [7.0, 7.0], [1.0, 1.0], terminated=torch.tensor([False, True]))
    assert table[2, 1] == pytest.approx(0.5 * (1 + 0.9 * 3))
    assert table[3, 1] == 0.5, "after a death nothing follows"
    assert int((table != 0).sum()) == 4


def test_truncated_episode_bootstraps_from_its_final_observation() -> None:
    """The episode is truncated at position 4; the observation after the reset shows 0, whose value is not used."""
    agent = agent_of(make_loop(IndexChain(1), lr=0.5))
    table = agent.network.table[0]
    table[4], table[0] = torch.tensor([3.0, 2.0]), torch.tensor([100.0, 100.0])
    final = FinalObs(torch.tensor([0]), torch.tensor([[7.0]]), torch.tensor([[False, True]]))
    steps(agent, [5.0], [3.0], [1.0], ended=final, truncated=torch.tensor([True]))
    assert table[2, 1] == pytest.approx(0.5 * (1 + 0.9 * 2)), "with the mask of that observation"


def test_invalid_action_is_never_the_best() -> None:
    agent = agent_of(make_loop(IndexChain(1), lr=1.0))
    agent.network.table[0, 4] = torch.tensor([3.0, 2.0])
    steps(agent, [5.0], [7.0], [0.0], mask=torch.tensor([[False, True]]))
    assert agent.network.table[0, 2, 1] == pytest.approx(0.9 * 2)


def test_equal_pairs_in_one_step_all_count() -> None:
    """Three rows update the same pair: as far as three updates towards the mean of their targets."""
    agent = agent_of(make_loop(IndexChain(4), lr=0.5))
    steps(agent, [5.0, 5.0, 5.0, 6.0], [4.0, 4.0, 4.0, 4.0], [1.0, 2.0, 6.0, 1.0])
    assert agent.network.table[0, 2, 1] == pytest.approx((1 - 0.5**3) * 3.0)
    assert agent.network.table[0, 3, 1] == pytest.approx(0.5)
    many = agent_of(make_loop(IndexChain(64), lr=0.9))
    for _ in range(20):
        steps(many, [5.0] * 64, [5.0] * 64, [1.0] * 64)
    assert float(many.network.table.max()) < 1 / (1 - 0.9), "many rows do not overshoot"


def test_autoreset_steps_are_not_learned_from() -> None:
    agent = agent_of(make_loop(AutoresetIndexChain(2), lr=0.5))
    steps(agent, [5.0, 6.0], [4.0, 4.0], [1.0, 9.0], autoreset_step=torch.tensor([False, True]))
    assert agent.network.table[0].nonzero().tolist() == [[2, 1]]


def test_double_q_learning_evaluates_with_the_other_table() -> None:
    """Each table is updated with the value that the other one has for its own best action."""
    agent = agent_of(make_loop(IndexChain(64), lr=1.0, double=True))
    agent.network.table[0, 4] = torch.tensor([1.0, 0.0])  # prefers action 0, whose value in the other table is 5
    agent.network.table[1, 4] = torch.tensor([5.0, 7.0])  # prefers action 1, whose value in the other table is 0
    steps(agent, [5.0] * 64, [7.0] * 64, [0.0] * 64)
    assert agent.network.table[:, 2, 1].tolist() == [pytest.approx(0.9 * 5), 0.0]
    torch.testing.assert_close(agent.network.values(torch.tensor([4])), torch.tensor([[3.0, 3.5]]))


@pytest.mark.parametrize(
    ("toy", "explore", "settings"),
    [
        (IndexChain, None, {}),
        (IndexChain, COUNTED, {"double": True, "lr": {"start": 0.5, "end": 0.1}}),
        (AutoresetIndexChain, ExploreSpec(action_selection=BoltzmannSpec(temperature=0.2)), {"initial_q": 1.0}),
    ],
    ids=["default", "double", "late"],
)
def test_resume_is_bit_identical(toy: type[ToyEnv], explore: ExploreSpec | None, settings: dict[str, Any]) -> None:
    whole = make_loop(toy(8), explore=explore, **settings)
    whole.run(21)
    saved = whole.state()
    history = whole.run(29)
    resumed = make_loop(toy(8), seed=99, explore=explore, **settings)
    resumed.run(7)
    resumed.restore(saved)
    assert resumed.run(29) == history
    assert len(history) == 2
    assert differing_leaves(whole.state(), resumed.state()) == []


def test_update_reports_its_metrics() -> None:
    history = make_loop(explore=COUNTED, lr={"start": 0.5, "end": 0.0, "to": 256.0}).run(32)
    assert history[0].keys() == {"td_error", "mean_q", "epsilon", "intrinsic_weight", "lr", "intrinsic_reward"}
    assert [metrics["lr"] for metrics in history] == [0.25, 0.0]
    assert history[0]["td_error"] > 0


def test_unsupported_environments_settings_and_states_are_rejected() -> None:
    for env, words in (
        (Chain(2), "but this one has the blocks place; use dqn or ppo"),
        (Target(2), "qlearning needs discrete actions, but this environment's are continuous"),
        (Bits(2), "are binary"),
    ):
        with pytest.raises(TownletError, match=words):
            make_loop(env)
    with pytest.raises(ValidationError, match="a step size"):
        QLearningSettings(lr=1.5)
    state = make_loop().state()["agent"]
    with pytest.raises(TownletError, match="the saved state of qlearning has no 'network'"):
        make_loop().agent.restore({name: part for name, part in state.items() if name != "network"})
    with pytest.raises(TownletError, match="table"):
        make_loop(double=True).agent.restore(state)
