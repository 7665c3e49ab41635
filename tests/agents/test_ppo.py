"""ppo: each part of the update, by its effects."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from agents.toy_envs import Chain, ToyEnv
from agents.training_loop import TrainingLoop, differing_leaves, rollout_obs, success_rate
from narrow import instance
from townlet.agents import ppo
from townlet.agents.agent import AgentContext
from townlet.agents.ppo import Ppo, PpoSettings
from townlet.errors import TownletError
from townlet.explore.spec import AdaptiveWeightSpec, CountsSpec, ExploreSpec, RndSpec, ScheduledWeightSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Discrete, MaskedObs, VecEnv
from townlet.nets.spec import MlpSpec
from townlet.rng import Streams

QUICK = {"lr": 1e-2, "gamma": 0.9, "n_steps": 16}
RND = ExploreSpec(bonus=RndSpec(hidden=(16,), embedding_size=8), weight=AdaptiveWeightSpec(episodes=2, mean=1.0))


class Treadmill(ToyEnv):
    """All steps look alike and give reward 1; after five of them an episode terminates or is truncated."""

    layout = ObservationLayout.of(("nothing", (1,), 0.0, 1.0))
    actions = Discrete(("on",))

    def __init__(self, rows: int, deadly: bool) -> None:
        self.deadly = deadly
        super().__init__(rows)

    def _start(self, rows: Tensor) -> None:
        pass

    def _advance(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        over, never = self._age == 5, torch.zeros(self.rows, dtype=torch.bool)
        return torch.ones(self.rows), over if self.deadly else never, never if self.deadly else over

    def _observe(self) -> MaskedObs:
        return MaskedObs(torch.ones(self.rows, 1), torch.ones(self.rows, 1, dtype=torch.bool))


def make_loop(
    env: VecEnv | None = None, seed: int = 1, explore: ExploreSpec | None = None, **settings: Any
) -> TrainingLoop:
    env, counters = env or Chain(16), Counters(budget=10_000)
    network = MlpSpec(hidden=(32,), activation="tanh")
    given = AgentContext(network, explore or ExploreSpec(), env, counters, Streams(seed), 20)
    return TrainingLoop(Ppo(PpoSettings(**(QUICK | settings)), given), env, counters)


def filled(loop: TrainingLoop) -> Ppo:
    """The agent with a full rollout, before it learns from it."""
    agent = loop.agent
    assert isinstance(agent, Ppo)
    agent.update_interval = 10**9
    loop.run(agent.settings.n_steps)
    assert agent.rollout.full
    return agent


def weights(agent: Ppo) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in agent.parameters().items()}


def test_chain_is_learned() -> None:
    loop = make_loop()
    assert success_rate(loop.agent.policy(), Chain(16)) < 0.9

    def check() -> None:
        assert success_rate(loop.agent.policy(), Chain(16)) == 1.0

    history = loop.run_until(check, 16 * 25)
    assert history[0]["normalized_entropy"] > history[-1]["normalized_entropy"]
    assert all(math.isfinite(value) for metrics in history for value in metrics.values())


@pytest.mark.parametrize("deadly", [True, False])
def test_truncation_is_not_termination(deadly: bool) -> None:
    """With truncation every step is worth 1 / (1 − γ); with termination at most 1 + γ + … + γ⁴."""
    env = Treadmill(8, deadly)
    loop = make_loop(env, gamma=0.8, max_grad_norm=None)
    loop.run(16 * 12)
    worth = filled(loop).rollout.value.mean().item()
    assert (1.0 < worth < 3.36) if deadly else worth == pytest.approx(5.0, abs=0.25)


def test_only_truncated_rows_bootstrap_and_from_their_final_observation() -> None:
    agent = filled(make_loop(n_steps=40))
    kept = agent.rollout
    assert kept.truncated.any()
    assert kept.terminated.any()
    assert (kept.bootstrap[~kept.truncated] == 0).all()
    # An episode is truncated at the position from which the next step would start.
    place = rollout_obs(kept).argmax(-1) + 2 * kept.actions - 1
    observed = torch.nn.functional.one_hot(place.clamp(0, 7), 8).float()
    with torch.no_grad():
        value = agent.network(observed.flatten(0, 1), agent.network.initial_hidden(observed[..., 0].numel()))[
            1
        ].view_as(kept.value)
    torch.testing.assert_close(kept.bootstrap[kept.truncated], value[kept.truncated])


def test_actions_are_valid_with_the_probabilities_of_the_policy() -> None:
    agent = filled(make_loop())
    kept = agent.rollout
    assert (~kept.mask).any()
    assert kept.mask.gather(-1, kept.actions.unsqueeze(-1)).all()
    shown = agent.policy().outputs(rollout_obs(kept).flatten(0, 1), kept.mask.flatten(0, 1))["probabilities"]
    taken = shown.gather(1, kept.actions.view(-1, 1)).view_as(kept.log_prob)
    torch.testing.assert_close(kept.log_prob, taken.log(), atol=1e-5, rtol=0)


def test_approx_kl_is_zero_before_the_first_gradient_step() -> None:
    """One minibatch, one epoch: every ratio is 1, so the loss is minus the mean of advantages that have mean 0."""
    metrics = make_loop(epochs=1, batch_size=1.0).run(16 * 2)[-1]
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-11)
    assert metrics["clip_fraction"] == 0
    assert metrics["policy_loss"] == pytest.approx(0, abs=1e-6)
    moved = make_loop(epochs=2, batch_size=1.0).run(16 * 2)[-1]
    assert moved["approx_kl"] > 1e-6


def test_epochs_stop_at_the_target_kl_and_restart_in_the_next_update() -> None:
    def epochs(target: float | None) -> list[dict[str, float]]:
        return make_loop(epochs=6, target_kl=target).run(16 * 3)

    free, soon = epochs(None), epochs(1e-9)
    later = epochs(free[0]["approx_kl"] / 2)
    assert [metrics["epochs_done"] for metrics in free] == [6, 6, 6]
    assert [metrics["epochs_done"] for metrics in soon] == [1, 1, 1]
    assert 1 < later[0]["epochs_done"] < 6
    assert later[0]["approx_kl"] > free[0]["approx_kl"] / 2


def test_kl_stop_is_reset_for_the_next_update() -> None:
    """The first update exceeds the target and stops; the second has a learning rate of 0, so nothing stops it."""
    lr = {"start": 1e-2, "end": 0.0, "from": 300.0, "to": 301.0}
    metrics = make_loop(epochs=6, target_kl=1e-4, lr=lr).run(16 * 2)
    assert [history["epochs_done"] for history in metrics] == [1, 6]
    assert metrics[0]["approx_kl"] > 1e-4 > metrics[1]["approx_kl"]


FALLING = {"start": 0.4, "end": 0.0, "to": 512.0}  # 256 env_steps per rollout: half of `start` at the first update


@pytest.mark.parametrize(
    ("key", "figure"),
    [("clip", "clip"), ("value_clip", "value_clip"), ("entropy_coef", "entropy_coef"), ("value_coef", "value_coef")],
)
def test_coefficients_follow_their_schedules(key: str, figure: str) -> None:
    """The metrics report the value, and the update matches that with the same constant."""
    ways: tuple[Any, ...] = (FALLING, 0.2, 0.4)
    scheduled, fixed, other = (make_loop(**{key: way}) for way in ways)
    metrics = [loop.run(16 * 1)[0] for loop in (scheduled, fixed, other)]
    assert metrics[0].pop(figure) == pytest.approx(0.2)
    assert figure not in metrics[1], "constants are in the recipe"
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-5)
    assert metrics[0] != pytest.approx(metrics[2], rel=1e-5)
    assert scheduled.run(16)[0][figure] == 0


def test_narrow_clip_keeps_the_policy_close() -> None:
    """Beyond the first gradient step every sample that moved the right way is clipped, and a wide clip clips none."""
    narrow, wide = (make_loop(clip=clip, epochs=4).run(16)[0] for clip in (1e-6, 1e3))
    assert narrow["clip_fraction"] > 0.5
    assert wide["clip_fraction"] == 0
    assert narrow["approx_kl"] < wide["approx_kl"]


def test_gradient_norm_is_limited() -> None:
    def moved(limit: float | None) -> tuple[float, float]:
        agent = filled(make_loop(max_grad_norm=limit, optimizer="sgd", epochs=1, batch_size=1.0, lr=1.0))
        before = weights(agent)
        metrics = agent.learn()
        assert metrics is not None
        way = torch.cat([(weight - before[name]).flatten() for name, weight in weights(agent).items()])
        return float(way.norm()), metrics["grad_norm"]

    (free, norm), (short, same) = moved(None), moved(1e-3)
    assert norm == pytest.approx(same)
    assert free == pytest.approx(norm, rel=1e-4)
    assert short == pytest.approx(1e-3, rel=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_every_optimizer_makes_its_own_step(optimizer: str) -> None:
    """One gradient step of length: adam's lr for every weight, adamw's a little shorter, sgd's that of the gradient."""
    agent = filled(make_loop(optimizer=optimizer, epochs=1, batch_size=1.0, lr=1e-2, max_grad_norm=None))
    before = weights(agent)["actor.body.encoder.0.weight"]
    agent.learn()
    after = agent.parameters()["actor.body.encoder.0.weight"]
    grad = instance(after.grad, torch.Tensor)
    step = 1e-2 * (grad if optimizer == "sgd" else grad / (grad.abs() + 1e-8))
    decayed = before * (1 - 1e-2 * 0.01) if optimizer == "adamw" else before
    torch.testing.assert_close(after.detach(), decayed - step, atol=1e-6, rtol=1e-4)


def test_batch_fraction_is_rounded_down_to_at_least_one_step() -> None:
    """Adam counts the gradient steps of one epoch. As floats .145 × 200 falls short of 29."""
    for rows, share, steps in ((2, 0.049, 40), (2, 1e-9, 40), (10, 0.145, -(-200 // 29))):
        agent = filled(make_loop(Chain(rows), epochs=1, batch_size=share, n_steps=20))
        agent.learn()
        assert {int(kept["step"]) for kept in agent.state()["optimizer"].values()} == {steps}, share


def test_minibatch_sizes_differ_by_at_most_one() -> None:
    """Adam's count tells how many gradient steps were made: 256 stored steps, two epochs."""
    for size, steps in ((64, 8), (0.5, 4), (1.0, 2), (1, 2), (2, 256), (10_000, 2)):
        agent = filled(make_loop(epochs=2, batch_size=size))
        agent.learn()
        counts = {int(kept["step"]) for kept in agent.state()["optimizer"].values()}
        assert counts == {steps}, size


def test_microbatches_give_the_gradient_of_the_whole_minibatch(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"optimizer": "sgd", "epochs": 2, "batch_size": 100, "value_clip": 0.1}
    whole, parts = filled(make_loop(**settings)), filled(make_loop(**settings))
    metrics = whole.learn()
    monkeypatch.setattr(ppo, "microbatch_size", lambda device: 7)
    assert parts.learn() == pytest.approx(metrics, rel=1e-4, abs=1e-6)
    for name, weight in weights(parts).items():
        torch.testing.assert_close(weight, whole.parameters()[name], atol=1e-6, rtol=0, msg=name)


def test_advantages_are_normalized_per_batch_or_rollout() -> None:
    def learned(way: str, scale: float = 1.0, **more: Any) -> dict[str, Tensor]:
        plain = {"value_coef": 0.0, "entropy_coef": 0.0, "epochs": 1, "max_grad_norm": None, "optimizer": "sgd"}
        agent = filled(make_loop(normalize_advantage=way, reward_scale=scale, **(plain | more)))
        with torch.no_grad():  # advantages are rewards alone, so that their size is that of the rewards
            agent.rollout.value.zero_()
            agent.rollout.bootstrap.zero_()
            agent.last_value.zero_()
        agent.learn()
        return {name: weight for name, weight in weights(agent).items() if name.startswith("actor")}

    def far(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
        return max(float((a[name] - b[name]).abs().max()) for name in a)

    assert far(learned("batch", batch_size=1.0), learned("rollout", batch_size=1.0)) < 1e-7
    assert far(learned("batch", batch_size=0.25), learned("rollout", batch_size=0.25)) > 1e-6
    assert far(learned("batch"), learned("batch", scale=10.0)) < 1e-6, "normalized, their size does not count"
    assert far(learned("rollout"), learned("rollout", scale=10.0)) < 1e-6
    assert far(learned("none"), learned("none", scale=10.0)) > 1e-5


def test_separate_critic_does_not_affect_the_policy() -> None:
    def actor(shared: bool, value: float) -> dict[str, Tensor]:
        agent = filled(make_loop(shared=shared, value_coef=value, epochs=1, max_grad_norm=None, optimizer="sgd"))
        agent.learn()
        return {name: weight for name, weight in weights(agent).items() if name.startswith("actor")}

    assert differing_leaves(actor(False, 0.0), actor(False, 5.0)) == []
    assert differing_leaves(actor(True, 0.0), actor(True, 5.0)) != []


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_learning_rate_follows_its_schedule(optimizer: str) -> None:
    """256 env_steps per rollout: half of the initial rate at the second update, and 0 from the fourth on."""
    loop = make_loop(lr={"start": 1e-2, "end": 0.0, "to": 1024.0}, optimizer=optimizer)
    agent = loop.agent
    assert isinstance(agent, Ppo)
    moved = []
    for _ in range(5):
        before = weights(agent)
        loop.run(16)
        moved.append(differing_leaves(before, weights(agent)) != [])
    assert moved == [True, True, True, False, False]


def test_entropy_bonus_keeps_the_policy_stochastic() -> None:
    def left(entropy: float) -> float:
        return make_loop(entropy_coef=entropy, epochs=8).run(16 * 4)[-1]["normalized_entropy"]

    assert left(20.0) > 0.97 > 0.8 > left(0.0)


def test_entropy_is_one_for_uniform_policies_and_zero_without_a_choice() -> None:
    uniform = make_loop()
    uniform.run(1)
    agent = instance(uniform.agent, Ppo)
    assert agent.entropy().shape == (16,)
    assert (agent.entropy()[agent.rollout.mask[0].all(1)] > 0.99).all()
    narrow = make_loop(Treadmill(4, True))
    narrow.run(1)
    assert narrow.agent.entropy().tolist() == [0, 0, 0, 0]


def test_intrinsic_reward_is_stored_unweighted_and_weighted_once() -> None:
    def learned(weight: float) -> tuple[Tensor, Tensor, dict[str, float]]:
        agent = filled(
            make_loop(explore=ExploreSpec(bonus=RND.bonus, weight=ScheduledWeightSpec(value=weight)), epochs=1)
        )
        stored = agent.rollout.intrinsic.clone()
        assert torch.equal(stored[-1], agent.intrinsic)
        value = agent.rollout.value.clone()
        metrics = agent.learn()
        assert metrics is not None
        return stored, agent.rollout._returns - value, metrics

    (little, small, _), (much, large, metrics) = learned(1e-9), learned(2.0)
    assert torch.equal(little, much)
    assert (much > 0).all()
    assert metrics["intrinsic_weight"] == 2
    assert metrics["rnd_loss"] > 0
    # At a terminated step the advantage is reward − value, so the weight can be read off.
    dead = filled(
        make_loop(explore=ExploreSpec(bonus=RND.bonus, weight=ScheduledWeightSpec(value=2.0)))
    ).rollout.terminated
    assert dead.any()
    torch.testing.assert_close((large - small)[dead], 2 * much[dead], atol=1e-5, rtol=1e-5)
    assert not make_loop().agent.intrinsic.any()


def test_intrinsic_reward_is_of_the_final_observation_not_of_the_reset() -> None:
    """The goal is only in final observations. It is new when first reached; starting positions are not."""
    counts = ExploreSpec(bonus=CountsSpec(), weight=ScheduledWeightSpec(value=1.0))
    kept = filled(make_loop(Chain(1), explore=counts, n_steps=400)).rollout
    first = kept.terminated[:, 0].nonzero()[0]
    assert (kept.intrinsic[: int(first)] < 1).any()
    assert kept.intrinsic[first] == 1


@pytest.mark.parametrize(
    ("explore", "settings"),
    [
        (None, {}),
        (None, {"shared": False, "optimizer": "sgd", "value_clip": 0.2, "target_kl": 0.01, "batch_size": 50}),
        (RND, {"lr": {"start": 1e-2, "end": 1e-4}, "optimizer": "adamw", "normalize_advantage": "rollout"}),
    ],
    ids=["default", "apart", "rnd"],
)
def test_resume_is_bit_identical(explore: ExploreSpec | None, settings: dict[str, Any]) -> None:
    whole = make_loop(explore=explore, **settings)
    whole.run(16 * 2 + 5)
    saved = whole.state()
    history = whole.run(16 * 2)
    resumed = make_loop(seed=99, explore=explore, **settings)
    resumed.run(7)  # its earlier state must not matter
    resumed.restore(saved)
    assert resumed.run(16 * 2) == history
    assert len(history) == 2
    assert differing_leaves(whole.state(), resumed.state()) == []


def test_state_of_another_agent_is_rejected() -> None:
    state = make_loop().state()["agent"]
    with pytest.raises(TownletError, match="the saved state of ppo has no 'rollout'"):
        make_loop().agent.restore({name: part for name, part in state.items() if name != "rollout"})
    with pytest.raises(TownletError, match="critic"):
        make_loop(shared=False).agent.restore(state)
    with pytest.raises(TownletError, match="'hidden' was saved as"):
        make_loop(Chain(5)).agent.restore(state)


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 1.5},
        {"batch_size": 0},
        {"clip": -0.1},
        {"clip": 0},
        {"clip": {"start": 0, "end": 0.1}},
        {"value_clip": 0},
        {"value_coef": -0.1},
        {"lr": "lin_-1"},
    ],
)
def test_invalid_settings_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PpoSettings(**wrong)
