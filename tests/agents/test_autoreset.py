"""Autoreset steps have no effect on learning, whatever values they contain."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from agents.toy_envs import AutoresetChain, Chain, ToyEnv
from agents.training_loop import TrainingLoop, differing_leaves, success_rate
from townlet.agents.agent import AgentContext
from townlet.agents.dqn import Dqn, DqnSettings
from townlet.agents.drqn import Drqn, DrqnSettings
from townlet.agents.ppo import Ppo, PpoSettings
from townlet.buffers.prioritized import PrioritySpec
from townlet.errors import TownletError
from townlet.explore.intrinsic_reward import CountBonus
from townlet.explore.spec import CountsSpec, ExploreSpec, RndSpec, ScheduledWeightSpec
from townlet.interfaces import conformance
from townlet.interfaces.counters import Counters
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Discrete, MaskedObs, VecEnv
from townlet.nets.spec import MlpSpec, NetworkSpec, RecurrentSpec
from townlet.rng import Streams

QUICK = {"lr": 1e-2, "gamma": 0.9}
NOVEL = ExploreSpec(bonus=RndSpec(hidden=(16,), embedding_size=8), weight=ScheduledWeightSpec(value=0.5))
COUNTED = ExploreSpec(bonus=CountsSpec(), weight=ScheduledWeightSpec(value=0.5))


class OneStepEnv(ToyEnv):
    """Episodes of one step, so that every second step is an autoreset step."""

    layout = ObservationLayout.of(("nothing", (1,), 0.0, 1.0))
    actions = Discrete(("on",))
    autoreset_steps = True

    def _start(self, rows: Tensor) -> None:
        pass

    def _advance(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        always = torch.ones(self.rows, dtype=torch.bool)
        return always.float(), always, ~always

    def _observe(self) -> MaskedObs:
        return MaskedObs(torch.ones(self.rows, 1), torch.ones(self.rows, 1, dtype=torch.bool))


def make_context(env: VecEnv, explore: ExploreSpec | None = None, network: NetworkSpec | None = None) -> AgentContext:
    network = network or MlpSpec(hidden=(32,))
    return AgentContext(network, explore or ExploreSpec(), env, Counters(budget=10_000), Streams(1), 20)


def make_ppo_loop(
    env: VecEnv | None = None, explore: ExploreSpec | None = None, **settings: Any
) -> tuple[Ppo, TrainingLoop]:
    env = env or AutoresetChain(16)
    given = make_context(env, explore)
    agent = Ppo(PpoSettings(**(QUICK | {"n_steps": 40} | settings)), given)
    return agent, TrainingLoop(agent, env, given.counters)


def make_dqn_loop(explore: ExploreSpec | None = None, rows: int = 16, **settings: Any) -> tuple[Dqn, TrainingLoop]:
    env = AutoresetChain(rows)
    given = make_context(env, explore)
    quick = {"warmup": 100, "update_every": 2, "target_every": 20, "batch_size": 32}
    agent = Dqn(DqnSettings(**(QUICK | quick | settings)), given)
    return agent, TrainingLoop(agent, env, given.counters)


@pytest.mark.parametrize("toy", [AutoresetChain, OneStepEnv])
def test_autoreset_envs_conform(toy: type[ToyEnv], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "STEPS", 48)  # two episodes
    exclude = [conformance.same_seed_same_episodes] if toy is OneStepEnv else []
    conformance.check(toy, exclude=exclude)


@pytest.mark.parametrize("explore", [None, NOVEL], ids=["plain", "rnd"])
@pytest.mark.parametrize("way", ["batch", "rollout", "none"])
def test_autoreset_steps_do_not_affect_ppo(way: str, explore: ExploreSpec | None) -> None:
    def learned(poison: bool) -> tuple[dict[str, Tensor], dict[str, float]]:
        agent, loop = make_ppo_loop(explore=explore, normalize_advantage=way, value_clip=0.2)
        agent.update_interval = 10**9
        loop.run(40)
        kept, columns = agent.rollout, agent.rollout._storage.columns
        autoreset = columns["autoreset"]
        assert 10 < int(autoreset.sum()) < 300
        assert (kept.truncated | kept.terminated)[-1].any() or kept.truncated.any()
        if poison:
            columns["obs"][autoreset] = float("nan")
            kept.mask[autoreset] = True
            kept.actions[autoreset] = 1
            for column in (kept.log_prob, kept.value, kept.reward, kept.intrinsic, kept.bootstrap):
                column[autoreset] = 1e6
        metrics = agent.learn()
        assert metrics is not None
        return {name: weight.detach().clone() for name, weight in agent.parameters().items()}, metrics

    (clean, metrics_before), (poisoned, metrics) = learned(False), learned(True)
    assert differing_leaves(clean, poisoned) == []
    assert metrics_before == metrics


def test_hidden_states_are_reset_where_episodes_start() -> None:
    agent, loop = make_ppo_loop()
    agent.update_interval = 10**9
    loop.run(40)
    kept = agent.rollout
    assert kept.episode_start[0].all()
    assert torch.equal(kept.episode_start[1:], kept._storage.columns["autoreset"][:-1])


def test_rollout_of_autoreset_steps_alone_is_discarded() -> None:
    agent, loop = make_ppo_loop(OneStepEnv(4), n_steps=1)
    history = loop.run(6)
    assert len(history) == 3, "every other one is all autoreset"
    assert agent.rollout.steps == 0


def test_chain_with_autoreset_steps_is_learned() -> None:
    def check() -> None:
        assert success_rate(loop.agent.policy(), Chain(16)) == 1.0

    _, loop = make_ppo_loop(n_steps=16)
    loop.run_until(check, 16 * 30)
    _, loop = make_dqn_loop(gamma=0.9, lr=3e-3)
    loop.run_until(check, 600)


@pytest.mark.parametrize("priority", [None, PrioritySpec()], ids=["uniform", "prioritized"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_autoreset_steps_do_not_affect_dqn(n_step: int, priority: PrioritySpec | None) -> None:
    def learned(poison: bool) -> dict[str, Tensor]:
        agent, loop = make_dqn_loop(n_step=n_step, prioritized=priority, warmup=10**6)
        loop.run(60)
        agent.settings = agent.settings.model_copy(update={"warmup": 1})
        columns = agent.buffer._storage.columns
        autoreset = columns["autoreset"]
        assert int(autoreset.sum()) > 20
        if poison:
            columns["obs"][autoreset] = columns["next_obs"][autoreset] = float("nan")
            columns["reward"][autoreset] = 1e6
        for _ in range(40):
            agent.learn()
        return {name: weight.detach().clone() for name, weight in agent.parameters().items()}

    assert differing_leaves(learned(False), learned(True)) == []


def test_autoreset_steps_do_not_count_as_warm_up() -> None:
    agent, loop = make_dqn_loop(warmup=10**6)
    loop.run(60)
    autoreset = agent.buffer._storage.columns["autoreset"][:60]
    assert agent.state()["counts"]["observed"] == 60 * 16 - int(autoreset.sum()) < 60 * 16


@pytest.mark.parametrize("make", [make_ppo_loop, make_dqn_loop])
def test_autoreset_steps_get_no_bonus(make: Any) -> None:
    agent, loop = make(explore=COUNTED)
    agent.update_interval = 10**9
    ends = 0
    for _ in range(40):
        begin = loop.env._needs_reset
        ends += int(begin.sum())
        loop.run(1)
        assert not agent.intrinsic[begin].any(), "rows that have just been reset get no bonus"
        assert agent.intrinsic[~begin].all()
    assert ends > 20
    assert isinstance(agent.bonus, CountBonus)
    assert int(agent.bonus._visits.sum()) == 40 * 16 - ends


def test_recurrent_agents_are_rejected() -> None:
    recurrent = MlpSpec(recurrent=RecurrentSpec(size=8))
    with pytest.raises(
        TownletError, match="drqn with a recurrent network cannot train on an environment with autoreset"
    ):
        Drqn(DrqnSettings(), make_context(AutoresetChain(2), network=recurrent))
    with pytest.raises(
        TownletError, match="ppo with a recurrent network cannot train on an environment with autoreset"
    ):
        Ppo(PpoSettings(), make_context(AutoresetChain(2), network=recurrent))


@pytest.mark.parametrize("make", [make_ppo_loop, make_dqn_loop])
def test_resume_is_bit_identical(make: Any) -> None:
    settings = {"n_steps": 16} if make is make_ppo_loop else {"prioritized": PrioritySpec()}
    _, whole = make(explore=COUNTED, **settings)
    whole.run(37)
    saved = whole.state()
    history = whole.run(32)
    _, resumed = make(explore=COUNTED, **settings)
    resumed.run(7)
    resumed.restore(saved)
    assert resumed.run(32) == history
    assert history
    assert differing_leaves(whole.state(), resumed.state()) == []
