"""Steps that only begin an episode anew teach nothing: whatever stands in them, the same is learned."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from agents.lives import Life, differences, success
from agents.toys import Chain, LateChain, Toy
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

torch.set_num_threads(1)
QUICK = {"lr": 1e-2, "gamma": 0.9}
NOVEL = ExploreSpec(bonus=RndSpec(hidden=(16,), embedding_size=8), weight=ScheduledWeightSpec(value=0.5))
COUNTED = ExploreSpec(bonus=CountsSpec(), weight=ScheduledWeightSpec(value=0.5))


class Blink(Toy):
    """An episode is one step, so that every other step is autoreset."""

    layout = ObservationLayout.of(("nothing", (1,), 0.0, 1.0))
    actions = Discrete(("on",))
    autoreset_steps = True

    def _begin(self, rows: Tensor) -> None:
        pass

    def _move(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        always = torch.ones(self.rows, dtype=torch.bool)
        return always.float(), always, ~always

    def _seen(self) -> MaskedObs:
        return MaskedObs(torch.ones(self.rows, 1), torch.ones(self.rows, 1, dtype=torch.bool))


def materials(env: VecEnv, explore: ExploreSpec | None = None, network: NetworkSpec | None = None) -> AgentContext:
    network = network or MlpSpec(hidden=(32,))
    return AgentContext(network, explore or ExploreSpec(), env, Counters(budget=10_000), Streams(1), 20)


def ppo_life(env: VecEnv | None = None, explore: ExploreSpec | None = None, **settings: Any) -> tuple[Ppo, Life]:
    env = env or LateChain(16)
    given = materials(env, explore)
    agent = Ppo(PpoSettings(**(QUICK | {"n_steps": 40} | settings)), given)
    return agent, Life(agent, env, given.counters)


def dqn_life(explore: ExploreSpec | None = None, rows: int = 16, **settings: Any) -> tuple[Dqn, Life]:
    env = LateChain(rows)
    given = materials(env, explore)
    quick = {"warmup": 100, "update_every": 2, "target_every": 20, "batch_size": 32}
    agent = Dqn(DqnSettings(**(QUICK | quick | settings)), given)
    return agent, Life(agent, env, given.counters)


@pytest.mark.parametrize("toy", [LateChain, Blink])
def test_late_toys_keep_the_contract(toy: type[Toy]) -> None:
    exclude = [conformance.same_seed_same_episodes] if toy is Blink else []
    conformance.check(toy, exclude=exclude)


@pytest.mark.parametrize("explore", [None, NOVEL], ids=["plain", "rnd"])
@pytest.mark.parametrize("way", ["batch", "rollout", "none"])
def test_void_steps_change_nothing_that_ppo_learns(way: str, explore: ExploreSpec | None) -> None:
    def learned(poison: bool) -> tuple[dict[str, Tensor], dict[str, float]]:
        agent, life = ppo_life(explore=explore, normalize_advantage=way, value_clip=0.2)
        agent.update_interval = 10**9
        life.go_on(40)
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
        told = agent.learn()
        assert told is not None
        return {name: weight.detach().clone() for name, weight in agent.parameters().items()}, told

    (clean, said), (poisoned, told) = learned(False), learned(True)
    assert differences(clean, poisoned) == []
    assert said == told


def test_hidden_states_begin_anew_where_episodes_begin() -> None:
    agent, life = ppo_life()
    agent.update_interval = 10**9
    life.go_on(40)
    kept = agent.rollout
    assert kept.episode_start[0].all()
    assert torch.equal(kept.episode_start[1:], kept._storage.columns["autoreset"][:-1])


def test_a_rollout_without_a_single_real_step_is_let_go() -> None:
    agent, life = ppo_life(Blink(4), n_steps=1)
    figures = life.go_on(6)
    assert len(figures) == 3, "every other one is all autoreset"
    assert agent.rollout.steps == 0


def test_the_chain_is_learned_late_as_well() -> None:
    _, life = ppo_life(n_steps=16)
    life.go_on(16 * 30)
    assert success(life.agent.policy(), Chain(16)) == 1.0
    _, life = dqn_life(gamma=0.9, lr=3e-3)
    life.go_on(600)
    assert success(life.agent.policy(), Chain(16)) == 1.0


@pytest.mark.parametrize("priority", [None, PrioritySpec()], ids=["uniform", "prioritized"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_void_steps_change_nothing_that_dqn_learns(n_step: int, priority: PrioritySpec | None) -> None:
    def learned(poison: bool) -> dict[str, Tensor]:
        agent, life = dqn_life(n_step=n_step, prioritized=priority, warmup=10**6)
        life.go_on(60)
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

    assert differences(learned(False), learned(True)) == []


def test_void_steps_do_not_warm_up() -> None:
    agent, life = dqn_life(warmup=10**6)
    life.go_on(60)
    autoreset = agent.buffer._storage.columns["autoreset"][:60]
    assert agent.state()["counts"]["observed"] == 60 * 16 - int(autoreset.sum()) < 60 * 16


@pytest.mark.parametrize("make", [ppo_life, dqn_life])
def test_nothing_new_is_reached_in_void_steps(make: Any) -> None:
    agent, life = make(explore=COUNTED)
    agent.update_interval = 10**9
    ends = 0
    for _ in range(40):
        begin = life.env._over
        ends += int(begin.sum())
        life.go_on(1)
        assert not agent.intrinsic[begin].any(), "rows that have just begun are paid nothing"
        assert agent.intrinsic[~begin].all()
    assert ends > 20
    assert isinstance(agent.bonus, CountBonus)
    assert int(agent.bonus._visits.sum()) == 40 * 16 - ends


def test_agents_with_a_memory_are_refused() -> None:
    recurrent = MlpSpec(recurrent=RecurrentSpec(size=8))
    with pytest.raises(
        TownletError, match="drqn with a recurrent network cannot train on an environment with autoreset"
    ):
        Drqn(DrqnSettings(), materials(LateChain(2), network=recurrent))
    with pytest.raises(
        TownletError, match="ppo with a recurrent network cannot train on an environment with autoreset"
    ):
        Ppo(PpoSettings(), materials(LateChain(2), network=recurrent))


@pytest.mark.parametrize("make", [ppo_life, dqn_life])
def test_train_stop_and_resume_gives_the_same_bits(make: Any) -> None:
    settings = {"n_steps": 16} if make is ppo_life else {"prioritized": PrioritySpec()}
    _, whole = make(explore=COUNTED, **settings)
    whole.go_on(37)
    saved = whole.state()
    figures = whole.go_on(32)
    _, resumed = make(explore=COUNTED, **settings)
    resumed.go_on(7)
    resumed.restore(saved)
    assert resumed.go_on(32) == figures
    assert figures
    assert differences(whole.state(), resumed.state()) == []
