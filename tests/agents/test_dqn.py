"""dqn learns a chain, resumes bit for bit, and rejects invalid settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from agents.toy_envs import Chain, Corridor
from agents.training_loop import TrainingLoop, differing_leaves, success_rate
from townlet.agents.agent import AgentContext
from townlet.agents.dqn import Dqn, DqnSettings
from townlet.buffers.prioritized import PrioritySpec
from townlet.config.schedule import Schedule
from townlet.errors import TownletError
from townlet.explore.spec import AdaptiveWeightSpec, BoltzmannSpec, EpsilonSpec, ExploreSpec, RndSpec
from townlet.interfaces import conformance
from townlet.interfaces.counters import Counters
from townlet.interfaces.vec_env import MaskedObs
from townlet.nets.spec import MlpSpec, RecurrentSpec
from townlet.rng import Streams

QUICK = {"lr": 3e-3, "gamma": 0.9, "warmup": 100, "update_every": 2, "target_every": 20, "batch_size": 32}
RND = ExploreSpec(bonus=RndSpec(hidden=(16,), embedding_size=8), weight=AdaptiveWeightSpec(episodes=2, mean=1.0))


def make_loop(seed: int = 1, explore: ExploreSpec | None = None, rows: int = 8, **switches: Any) -> TrainingLoop:
    explore = explore or ExploreSpec(action_selection=EpsilonSpec(decay=0.95, end=0.05))
    env, counters = Chain(rows), Counters(budget=10_000)
    given = AgentContext(MlpSpec(hidden=(32,)), explore, env, counters, Streams(seed), 20)
    agent = Dqn(DqnSettings(**(QUICK | switches)), given)
    return TrainingLoop(agent, env, counters)


@pytest.mark.parametrize("toy", [Chain, Corridor])
def test_toy_envs_conform(toy: type[Chain | Corridor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "STEPS", 48)  # two episodes
    conformance.check(toy)


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"double": False, "dueling": False, "loss": "huber"},
        {"n_step": 3, "prioritized": PrioritySpec(), "polyak": 0.05},
    ],
    ids=["default", "plain", "all"],
)
def test_chain_is_learned(switches: dict[str, Any]) -> None:
    loop = make_loop(**switches)
    assert success_rate(loop.agent.policy(), Chain(16)) < 0.9

    def check() -> None:
        values = loop.agent.policy().outputs(torch.eye(8))["values"]
        assert values[6, 1].item() == pytest.approx(1.0, abs=0.1)  # it terminates there with reward 1
        assert values[0, 1].item() == pytest.approx(0.9**6, abs=0.15)
        assert success_rate(loop.agent.policy(), Chain(16)) == 1.0

    loop.run_until(check, 600)


@pytest.mark.parametrize(
    ("explore", "switches"),
    [
        (None, {}),
        (None, {"prioritized": PrioritySpec(), "n_step": 3, "polyak": 0.1, "optimizer": "sgd"}),
        (RND, {"prioritized": PrioritySpec(), "lr": Schedule(start=1e-2, end=1e-4), "optimizer": "adamw"}),
        (ExploreSpec(action_selection=BoltzmannSpec(temperature=0.2)), {"gradient_steps": 3, "loss": "huber"}),
    ],
    ids=["default", "prioritized", "rnd", "boltzmann"],
)
def test_resume_is_bit_identical(explore: ExploreSpec | None, switches: dict[str, Any]) -> None:
    whole = make_loop(explore=explore, **switches)
    whole.run(31)
    saved = whole.state()
    history = whole.run(31)
    resumed = make_loop(seed=99, explore=explore, **switches)
    resumed.run(7)  # its earlier state must not matter
    resumed.restore(saved)
    assert resumed.run(31) == history
    assert len(history) > 10
    assert differing_leaves(whole.state(), resumed.state()) == []


def test_state_before_the_first_update_can_be_resumed() -> None:
    whole, resumed = make_loop(), make_loop(seed=99)
    resumed.restore(whole.state())
    assert whole.run(40) == resumed.run(40)
    assert differing_leaves(whole.state(), resumed.state()) == []


def test_same_seed_is_reproducible_and_global_random_state_is_unchanged() -> None:
    before = torch.get_rng_state()
    one, two, other = make_loop(explore=RND), make_loop(explore=RND), make_loop(seed=2, explore=RND)
    assert one.run(60) == two.run(60) != other.run(60)
    assert torch.equal(torch.get_rng_state(), before)


def test_no_updates_during_warm_up() -> None:
    loop = make_loop(warmup=161)
    before = {name: weight.clone() for name, weight in loop.agent.parameters().items()}
    assert loop.run(20) == []  # 160 transitions
    assert differing_leaves(before, dict(loop.agent.parameters())) == []
    assert len(loop.run(2)) == 1
    assert differing_leaves(before, dict(loop.agent.parameters())) != []


def test_update_reports_its_metrics() -> None:
    history = make_loop(explore=RND).run(40)[-1]
    expected = {
        "loss",
        "td_error",
        "mean_q",
        "grad_norm",
        "epsilon",
        "intrinsic_weight",
        "lr",
        "rnd_loss",
        "intrinsic_reward",
    }
    assert history.keys() == expected
    assert all(isinstance(value, float) for value in history.values())


def test_intrinsic_weight_decays_with_similar_episodes() -> None:
    history = make_loop(explore=RND).run(100)
    assert history[0]["intrinsic_weight"] <= 1.0
    assert history[-1]["intrinsic_weight"] < 0.9 * history[0]["intrinsic_weight"]


def test_environment_may_reuse_its_tensors() -> None:
    loop = make_loop(rows=1)
    env, agent = loop.env, loop.agent
    assert isinstance(agent, Dqn)
    obs, mask = loop.obs.obs.clone(), loop.obs.mask.clone()
    actions = agent.act(MaskedObs(obs, mask))
    obs.fill_(7.0)
    agent.observe(env.step(actions), env.final_obs())
    assert torch.equal(agent.buffer.sample(1).obs, loop.obs.obs)


def test_nan_weight_shows_in_the_metrics() -> None:
    loop = make_loop()
    loop.run(40)
    next(iter(loop.agent.parameters().values())).data[0, 0] = float("nan")
    assert loop.run(2)[-1]["loss"] != loop.run(2)[-1]["loss"]


def test_learning_rate_follows_its_schedule() -> None:
    loop = make_loop(lr=Schedule(start=1e-2, end=0.0, to=400.0))
    history = loop.run(40)
    assert history[-1]["lr"] == pytest.approx(1e-2 * (1 - 320 / 400))
    loop.run(10)
    before = {name: weight.clone() for name, weight in loop.agent.parameters().items()}
    assert loop.run(10)[-1]["lr"] == 0.0
    assert differing_leaves(before, dict(loop.agent.parameters())) == []


def test_entropy_falls_with_epsilon() -> None:
    loop = make_loop(explore=ExploreSpec(action_selection=EpsilonSpec(start=1.0, end=0.0, decay=0.5)))
    several = loop.obs.mask.all(1)
    loop.agent.act(loop.obs)
    blind = loop.agent.entropy()
    assert several.any()
    assert blind[several].tolist() == pytest.approx([1.0] * int(several.sum()), abs=1e-5)
    assert blind[~several].tolist() == [0.0] * int((~several).sum())  # entropy is 0 with one valid action
    loop.run(400)
    assert loop.agent.entropy().max() < 0.1


def test_policy_shares_the_weights() -> None:
    loop = make_loop()
    policy = loop.agent.policy()
    before = policy.outputs(torch.eye(8))["values"].clone()
    loop.run(60)
    assert not torch.equal(before, policy.outputs(torch.eye(8))["values"])


def test_recurrent_network_is_rejected() -> None:
    recurrent = MlpSpec(recurrent=RecurrentSpec(size=8))
    with pytest.raises(TownletError, match="use drqn"):
        Dqn(DqnSettings(), AgentContext(recurrent, ExploreSpec(), Chain(2), Counters(), Streams(1), 20))


def test_state_of_another_agent_is_rejected() -> None:
    state = make_loop(explore=RND).agent.state()
    with pytest.raises(TownletError, match="has no 'bonus'"):
        make_loop(explore=RND).agent.restore({name: part for name, part in state.items() if name != "bonus"})
    with pytest.raises(TownletError, match="network lacks 'head"):
        make_loop(dueling=False).agent.restore(make_loop().agent.state())
    with pytest.raises(TownletError, match="the saved optimizer has an unknown"):
        make_loop(optimizer="sgd").agent.restore(make_loop().agent.state())


@pytest.mark.parametrize("wrong", [{"gamma": 1.1}, {"polyak": 0.0}, {"loss": "l1"}, {"n_step": 0}, {"speed": 1}])
def test_settings_out_of_range_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DqnSettings(**wrong)


def test_every_setting_has_a_description() -> None:
    described = {name: field.description for name, field in DqnSettings.model_fields.items() if name != "name"}
    assert all(described.values())
