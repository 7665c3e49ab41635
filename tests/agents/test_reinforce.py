"""reinforce: whole episodes, baselines, and a state that resumes bit for bit."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from agents.test_action_kinds import mean_reward
from agents.toy_envs import AutoresetChain, Bits, Chain, Target, ToyEnv
from agents.training_loop import TrainingLoop, differing_leaves, success_rate
from narrow import instance
from townlet.agents import reinforce
from townlet.agents.agent import AgentContext
from townlet.agents.distributions import distribution_family
from townlet.agents.networks import ActorCritic
from townlet.agents.reinforce import Reinforce, ReinforceSettings, reinforce_loss
from townlet.buffers.episode_buffer import INITIAL_SLOTS, EpisodeSteps
from townlet.errors import TownletError
from townlet.explore.spec import CountsSpec, ExploreSpec, ScheduledWeightSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Discrete
from townlet.nets.spec import MlpSpec, RecurrentSpec
from townlet.rng import Streams

QUICK = {"lr": 2e-2, "gamma": 0.9, "episodes": 16}
COUNTED = ExploreSpec(bonus=CountsSpec(), weight=ScheduledWeightSpec(value=0.1))


def make_loop(
    env: ToyEnv | None = None, seed: int = 1, explore: ExploreSpec | None = None, **settings: Any
) -> TrainingLoop:
    env, counters = env or Chain(16), Counters(budget=10_000)
    network = MlpSpec(hidden=(32,), activation="tanh")
    given = AgentContext(network, explore or ExploreSpec(), env, counters, Streams(seed), 20)
    return TrainingLoop(Reinforce(ReinforceSettings(**(QUICK | settings)), given), env, counters)


def weights(loop: TrainingLoop) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in loop.agent.parameters().items()}


def check_chain_solved(loop: TrainingLoop) -> None:
    assert success_rate(loop.agent.policy(), Chain(16)) == 1.0


@pytest.mark.parametrize(
    "settings",
    [{}, {"baseline": "mean"}, {"baseline": "none"}, {"baseline": "mean", "returns": "episode"}, {"shared": True}],
    ids=["value", "mean", "none", "episode", "one body"],
)
def test_chain_is_learned(settings: dict[str, Any]) -> None:
    loop = make_loop(**settings)
    assert success_rate(loop.agent.policy(), Chain(16)) < 0.9
    history = loop.run_until(lambda: check_chain_solved(loop), 800)
    assert history[0]["normalized_entropy"] > history[-1]["normalized_entropy"]
    assert all(math.isfinite(value) for metrics in history for value in metrics.values())
    assert ("value_loss" in history[0]) == (settings.get("baseline", "value") == "value")


def test_chain_with_autoreset_steps_is_learned() -> None:
    loop = make_loop(AutoresetChain(16))
    loop.run_until(lambda: check_chain_solved(loop), 800)


def test_continuous_and_binary_actions_are_learned() -> None:
    targets, bits = make_loop(Target(64), episodes=64), make_loop(Bits(64), episodes=64)

    def check_targets() -> None:
        assert mean_reward(targets.agent.policy(), Target(200)) > -0.05

    def check_bits() -> None:
        assert mean_reward(bits.agent.policy(), Bits(200)) == 3

    targets.run_until(check_targets, 500)
    bits.run_until(check_bits, 150)


def test_loss_of_one_step_by_hand() -> None:
    """π = (¼, ¾) over the valid actions, of which the second was taken. Advantage 2, V = 2, G = 5."""
    network = ActorCritic(MlpSpec(hidden=()), ObservationLayout.of(("one", (1,), 0.0, 1.0)), 3, shared=True)
    with torch.no_grad():
        instance(network.actor.head, nn.Linear).bias.copy_(torch.tensor([0.0, math.log(3.0), 9.0]))
        instance(network.critic, nn.Linear).bias.fill_(2.0)
    steps = EpisodeSteps(torch.zeros(1, 1), torch.tensor([[True, True, False]]), torch.tensor([1]), torch.tensor([2.0]))
    loss, _ = reinforce_loss(
        network, distribution_family(Discrete(("a", "b", "c"))), steps, torch.tensor([2.0]), torch.tensor([5.0]),
        entropy_coef=0.1, value_coef=0.5,
    )  # fmt: skip
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert loss.item() == pytest.approx(-2 * math.log(0.75) + 0.5 * (2 - 5) ** 2 - 0.1 * entropy)


def test_approx_kl_measures_how_far_a_gradient_step_moves_the_policy() -> None:
    still, slow, fast = (make_loop(lr=lr).run(40)[0]["approx_kl"] for lr in (0.0, 1e-3, 2e-2))
    assert still == pytest.approx(0, abs=1e-9)
    assert 0 < 10 * slow < fast < 1


def test_grad_norms_of_the_parts_make_up_that_of_the_whole() -> None:
    metrics = make_loop(shared=True).run(40)[0]
    parts = [metrics[f"grad_norm_{part}"] for part in ("body", "actor", "critic")]
    assert min(parts) > 0
    assert math.hypot(*parts) == pytest.approx(metrics["grad_norm"], rel=1e-5)
    assert {name for name in make_loop().run(40)[0] if "grad_norm_" in name} == {"grad_norm_actor", "grad_norm_critic"}


def test_baseline_is_subtracted_from_the_returns() -> None:
    """Every episode is one step with reward 1: minus the mean, all advantages are 0."""

    class Even(Bits):
        def _advance(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            _, over, cut = super()._advance(actions)
            return torch.ones(self.rows), over, cut

    def policy_loss(baseline: str) -> float:
        return make_loop(Even(16), baseline=baseline, normalize=False).run(1)[0]["policy_loss"]

    assert policy_loss("mean") == pytest.approx(0, abs=1e-6)
    assert policy_loss("none") == pytest.approx(3 * math.log(2), rel=0.05), "−log π of three fair coins"


def test_only_truncated_episodes_bootstrap_and_from_their_final_observation() -> None:
    loop = make_loop(episodes=10**6)
    loop.run(60)
    kept = loop.agent.state()["episodes"]["columns"]
    place = (kept["obs"].argmax(-1) + 2 * kept["actions"] - 1).clamp(0, 7)[kept["ended"]]
    bootstrap, goal = kept["bootstrap"][kept["ended"]], place == 7
    assert 0 < int(goal.sum()) < len(goal)
    assert not bootstrap[goal].any()
    final = torch.nn.functional.one_hot(place, 8).float()
    network = instance(loop.agent, Reinforce).network
    with torch.no_grad():
        value = network(final, network.initial_hidden(len(final)))[1]
    torch.testing.assert_close(bootstrap[~goal], value[~goal])


def test_update_waits_for_enough_ended_episodes() -> None:
    loop, agent = make_loop(episodes=40), None
    agent = loop.agent
    assert isinstance(agent, Reinforce)
    ended = 0
    for _ in range(60):
        before, known = agent.buffer.episodes, loop.counters.episodes
        learned = loop.run(1)
        ended = before + loop.counters.episodes - known
        assert bool(learned) == (ended >= 40)
        assert agent.buffer.episodes == (0 if learned else ended)


def test_episodes_may_exceed_the_initial_capacity() -> None:
    class Long(Chain):
        limit = 3 * INITIAL_SLOTS

        def _advance(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            reward, _, cut = super()._advance(torch.zeros_like(actions))
            return reward, torch.zeros_like(cut), cut

    loop = make_loop(Long(3), episodes=3)
    assert len(loop.run(4 * INITIAL_SLOTS)) == 1
    assert loop.agent.state()["episodes"]["columns"]["ended"].shape == (INITIAL_SLOTS, 3)


@pytest.mark.parametrize("toy", [Chain, AutoresetChain])
def test_open_episodes_wait_for_their_end(toy: type[Chain]) -> None:
    """After an update each row keeps exactly the steps of its open episode."""
    env = toy(16)
    loop = make_loop(env, episodes=5)
    agent = loop.agent
    assert isinstance(agent, Reinforce)
    waited = 0
    for _ in range(100):
        if loop.run(1):
            assert torch.equal(agent.buffer._written, env._age * ~env._needs_reset)
            waited += int(agent.buffer._written.sum())
    assert waited > 100


@pytest.mark.parametrize(
    ("toy", "explore", "settings"),
    [
        (Chain, None, {}),
        (Chain, COUNTED, {"baseline": "mean", "optimizer": "sgd", "shared": True}),
        (AutoresetChain, None, {"returns": "episode", "baseline": "none", "lr": {"start": 1e-2, "end": 1e-4}}),
        (Target, None, {"entropy_coef": 0.01}),
        (Bits, None, {"normalize": False}),
    ],
    ids=["default", "counts", "late", "continuous", "binary"],
)
def test_resume_is_bit_identical(toy: type[ToyEnv], explore: ExploreSpec | None, settings: dict[str, Any]) -> None:
    settings = {"episodes": 5} | settings
    whole = make_loop(toy(6), explore=explore, **settings)
    whole.run(25)
    saved = whole.state()
    history = whole.run(35)
    resumed = make_loop(toy(6), seed=99, explore=explore, **settings)
    resumed.run(7)
    resumed.restore(saved)
    assert resumed.run(35) == history
    assert len(history) >= 2
    assert differing_leaves(whole.state(), resumed.state()) == []


def test_microbatches_give_the_gradient_of_the_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = make_loop(optimizer="sgd", entropy_coef=0.1), make_loop(optimizer="sgd", entropy_coef=0.1)
    metrics = whole.run(60)
    monkeypatch.setattr(reinforce, "microbatch_size", lambda device: 7)
    assert len(metrics) > 1
    for one, other in zip(metrics, parts.run(60), strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-5)


def test_moving_average_decays_by_its_setting() -> None:
    agent = make_loop(baseline="mean", baseline_decay=0.5).agent
    assert isinstance(agent, Reinforce)
    nothing = torch.zeros(3)
    assert agent._baseline(torch.tensor([1.0, 2.0, 3.0]), nothing) == 2, "the first mean is that of the first returns"
    assert agent._baseline(torch.tensor([5.0, 5.0, 5.0]), nothing) == pytest.approx((0.5 * 2 + 5) / 1.5)


def test_entropy_bonus_keeps_the_policy_stochastic() -> None:
    def left(entropy: float) -> float:
        return make_loop(entropy_coef=entropy).run(160)[-1]["normalized_entropy"]

    assert left(20.0) > 0.97 > 0.8 > left(0.0)


def test_normalized_advantages_ignore_the_reward_scale() -> None:
    def learned(normalize: bool, scale: float) -> dict[str, torch.Tensor]:
        loop = make_loop(normalize=normalize, reward_scale=scale, baseline="none", optimizer="sgd", max_grad_norm=None)
        while not loop.run(1):
            pass
        return weights(loop)

    def far(normalize: bool) -> float:
        one, other = learned(normalize, 1.0), learned(normalize, 8.0)
        return max(float((one[name] - other[name]).abs().max()) for name in one)

    assert far(True) < 1e-6 < 1e-4 < far(False)


def test_unsupported_environments_settings_and_states_are_rejected() -> None:
    recurrent = MlpSpec(recurrent=RecurrentSpec(size=8))
    with pytest.raises(TownletError, match="reinforce cannot train a recurrent network; use ppo"):
        Reinforce(ReinforceSettings(), AgentContext(recurrent, ExploreSpec(), Chain(2), Counters(), Streams(1), 20))
    with pytest.raises(ValidationError, match="must not be negative"):
        ReinforceSettings(entropy_coef=-1.0)
    state = make_loop().state()["agent"]
    with pytest.raises(TownletError, match="the saved state of reinforce has no 'episodes'"):
        make_loop().agent.restore({name: part for name, part in state.items() if name != "episodes"})
