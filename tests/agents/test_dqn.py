"""dqn learns a chain, goes on to the bit from its state, and says what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from agents.lives import Life, differences, success
from agents.toys import Chain, Corridor
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

torch.set_num_threads(1)
QUICK = {"lr": 3e-3, "gamma": 0.9, "warmup": 100, "update_every": 2, "target_every": 20, "batch_size": 32}
RND = ExploreSpec(bonus=RndSpec(hidden=(16,), embedding_size=8), weight=AdaptiveWeightSpec(episodes=2, mean=1.0))


def life(seed: int = 1, explore: ExploreSpec | None = None, rows: int = 8, **switches: Any) -> Life:
    explore = explore or ExploreSpec(action_selection=EpsilonSpec(decay=0.95, end=0.05))
    env, counters = Chain(rows), Counters(budget=10_000)
    given = AgentContext(MlpSpec(hidden=(32,)), explore, env, counters, Streams(seed), 20)
    agent = Dqn(DqnSettings(**(QUICK | switches)), given)
    return Life(agent, env, counters)


@pytest.mark.parametrize("toy", [Chain, Corridor])
def test_toys_keep_the_contract(toy: type[Chain | Corridor]) -> None:
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
    trained = life(**switches)
    assert success(trained.agent.policy(), Chain(16)) < 0.9
    trained.go_on(600)
    assert success(trained.agent.policy(), Chain(16)) == 1.0
    at_goal = trained.agent.policy().outputs(torch.eye(8)[6:7])["values"]
    assert at_goal[0, 1].item() == pytest.approx(1.0, abs=0.1)  # it ends there and pays 1
    start = trained.agent.policy().outputs(torch.eye(8)[:1])["values"]
    assert start[0, 1].item() == pytest.approx(0.9**6, abs=0.15)


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
def test_train_stop_and_resume_gives_the_same_bits(explore: ExploreSpec | None, switches: dict[str, Any]) -> None:
    whole = life(explore=explore, **switches)
    whole.go_on(61)
    saved = whole.state()
    figures = whole.go_on(61)
    resumed = life(seed=99, explore=explore, **switches)
    resumed.go_on(7)  # its own past must not shine through
    resumed.restore(saved)
    assert resumed.go_on(61) == figures
    assert figures
    assert differences(whole.state(), resumed.state()) == []


def test_state_before_the_first_update_can_be_resumed() -> None:
    whole, resumed = life(), life(seed=99)
    resumed.restore(whole.state())
    assert whole.go_on(40) == resumed.go_on(40)
    assert differences(whole.state(), resumed.state()) == []


def test_the_same_seed_gives_the_same_life_and_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    one, two, other = life(explore=RND), life(explore=RND), life(seed=2, explore=RND)
    assert one.go_on(60) == two.go_on(60) != other.go_on(60)
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_is_learned_while_warming_up() -> None:
    trained = life(warmup=161)
    before = {name: weight.clone() for name, weight in trained.agent.parameters().items()}
    assert trained.go_on(20) == []  # 160 transitions
    assert differences(before, dict(trained.agent.parameters())) == []
    assert len(trained.go_on(2)) == 1
    assert differences(before, dict(trained.agent.parameters())) != []


def test_figures_of_a_round() -> None:
    figures = life(explore=RND).go_on(40)[-1]
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
    assert figures.keys() == expected
    assert all(isinstance(value, float) for value in figures.values())


def test_intrinsic_weight_anneals_with_steady_lives() -> None:
    figures = life(explore=RND).go_on(100)
    assert figures[0]["intrinsic_weight"] <= 1.0
    assert figures[-1]["intrinsic_weight"] < 0.9 * figures[0]["intrinsic_weight"]


def test_an_environment_may_reuse_its_tensors() -> None:
    trained = life(rows=1)
    env, agent = trained.env, trained.agent
    assert isinstance(agent, Dqn)
    obs, mask = trained.obs.obs.clone(), trained.obs.mask.clone()
    actions = agent.act(MaskedObs(obs, mask))
    obs.fill_(7.0)
    agent.observe(env.step(actions), env.final_obs())
    assert torch.equal(agent.buffer.sample(1).obs, trained.obs.obs)


def test_a_weight_that_is_not_a_number_shows_in_the_figures() -> None:
    trained = life()
    trained.go_on(40)
    next(iter(trained.agent.parameters().values())).data[0, 0] = float("nan")
    assert trained.go_on(2)[-1]["loss"] != trained.go_on(2)[-1]["loss"]


def test_learning_rate_follows_its_schedule() -> None:
    trained = life(lr=Schedule(start=1e-2, end=0.0, to=400.0))
    figures = trained.go_on(40)
    assert figures[-1]["lr"] == pytest.approx(1e-2 * (1 - 320 / 400))
    trained.go_on(10)
    before = {name: weight.clone() for name, weight in trained.agent.parameters().items()}
    assert trained.go_on(10)[-1]["lr"] == 0.0
    assert differences(before, dict(trained.agent.parameters())) == []


def test_entropy_falls_with_epsilon() -> None:
    trained = life(explore=ExploreSpec(action_selection=EpsilonSpec(start=1.0, end=0.0, decay=0.5)))
    several = trained.obs.mask.all(1)
    trained.agent.act(trained.obs)
    blind = trained.agent.entropy()
    assert several.any()
    assert blind[several].tolist() == pytest.approx([1.0] * int(several.sum()), abs=1e-5)
    assert blind[~several].tolist() == [0.0] * int((~several).sum())  # one valid action is no choice
    trained.go_on(400)
    assert trained.agent.entropy().max() < 0.1


def test_policy_shares_the_weights() -> None:
    trained = life()
    policy = trained.agent.policy()
    before = policy.outputs(torch.eye(8))["values"].clone()
    trained.go_on(60)
    assert not torch.equal(before, policy.outputs(torch.eye(8))["values"])


def test_recurrent_network_is_refused() -> None:
    recurrent = MlpSpec(recurrent=RecurrentSpec(size=8))
    with pytest.raises(TownletError, match="use drqn"):
        Dqn(DqnSettings(), AgentContext(recurrent, ExploreSpec(), Chain(2), Counters(), Streams(1), 20))


def test_state_of_another_agent_is_refused() -> None:
    state = life(explore=RND).agent.state()
    with pytest.raises(TownletError, match="has no 'bonus'"):
        life(explore=RND).agent.restore({name: part for name, part in state.items() if name != "bonus"})
    with pytest.raises(TownletError, match="network lacks 'head"):
        life(dueling=False).agent.restore(life().agent.state())
    with pytest.raises(TownletError, match="the saved optimizer has an unknown"):
        life(optimizer="sgd").agent.restore(life().agent.state())


@pytest.mark.parametrize("wrong", [{"gamma": 1.1}, {"polyak": 0.0}, {"loss": "l1"}, {"n_step": 0}, {"speed": 1}])
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DqnSettings(**wrong)


def test_every_setting_says_what_it_does() -> None:
    described = {name: field.description for name, field in DqnSettings.model_fields.items() if name != "name"}
    assert all(described.values())
