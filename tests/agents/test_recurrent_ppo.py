"""Recurrent ppo: hidden states during collection and in updates."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from agents.toy_envs import Chain, Corridor
from agents.training_loop import TrainingLoop, differing_leaves, rollout_obs, success_rate
from townlet.agents import ppo
from townlet.agents.agent import AgentContext
from townlet.agents.distributions import Categorical
from townlet.agents.ppo import Ppo, PpoSettings
from townlet.buffers import rollout
from townlet.explore.spec import ExploreSpec, RndSpec, ScheduledWeightSpec
from townlet.interfaces.counters import Counters
from townlet.nets.spec import MlpSpec, RecurrentSpec
from townlet.rng import Streams

QUICK = {"lr": 1e-2, "n_steps": 32}
RND = ExploreSpec(bonus=RndSpec(hidden=(16,), embedding_size=8), weight=ScheduledWeightSpec(value=0.1))


def make_loop(
    kind: Literal["lstm", "gru"] | None,
    rows: int = 64,
    seed: int = 3,
    explore: ExploreSpec | None = None,
    toy: type[Corridor | Chain] = Corridor,
    **settings: Any,
) -> TrainingLoop:
    memory = RecurrentSpec(kind=kind, size=16, post_widths=()) if kind else None
    env, counters = toy(rows), Counters()
    network = MlpSpec(hidden=(32,), recurrent=memory)
    given = AgentContext(network, explore or ExploreSpec(), env, counters, Streams(seed), 8)
    return TrainingLoop(Ppo(PpoSettings(**(QUICK | settings)), given), env, counters)


def filled(loop: TrainingLoop, rounds: int) -> Ppo:
    """The agent after some updates, with a full rollout that it has not learned from."""
    agent = loop.agent
    assert isinstance(agent, Ppo)
    loop.run(rounds * agent.settings.n_steps)
    agent.update_interval = 10**9
    loop.run(agent.settings.n_steps)
    return agent


def test_cue_of_the_first_step_is_used_at_the_last() -> None:
    """The recurrent policy remembers the cue of the first step; policies without memory are right half of the time."""
    loop = make_loop("lstm")

    def check() -> None:
        assert success_rate(loop.agent.policy(), Corridor(128)) >= 0.95

    loop.run_until(check, 32 * 10)
    for memoryless in (make_loop(None), make_loop("lstm", carry=False)):
        memoryless.run(32 * 10)
        assert 0.4 < success_rate(memoryless.agent.policy(), Corridor(128)) < 0.6


@pytest.mark.parametrize(
    ("kind", "shared"),
    [
        ("lstm", True),
        ("gru", False),
        pytest.param("lstm", False, marks=pytest.mark.long),
        pytest.param("gru", True, marks=pytest.mark.long),
    ],
)
def test_recomputed_rollout_matches_the_collected_one(kind: Literal["lstm", "gru"], shared: bool) -> None:
    """Log-probabilities and values over whole rows equal those of collection, with episode starts in between."""
    agent = filled(make_loop(kind, rows=12, n_steps=21, epochs=2, shared=shared), rounds=2)
    kept = agent.rollout
    assert kept.episode_start[1:].any()
    assert (kept.hidden.abs().sum(1) > 0).all(), "memory is carried from rollout to rollout"
    with torch.no_grad():
        logits, value, _ = agent.network(rollout_obs(kept), kept.hidden, kept.episode_start)
        log_prob = Categorical(logits, kept.mask).log_prob(kept.actions)
        afresh, _, _ = agent.network(rollout_obs(kept), torch.zeros_like(kept.hidden), kept.episode_start)
    torch.testing.assert_close(log_prob, kept.log_prob, atol=1e-5, rtol=0)
    torch.testing.assert_close(value, kept.value, atol=1e-5, rtol=0)
    assert (afresh - logits).abs().max() > 1e-3, "the carried memory counts"


def test_approx_kl_is_zero_before_the_first_gradient_step() -> None:
    for metrics in make_loop("lstm", rows=12, n_steps=21, epochs=1, batch_size=1.0).run(21 * 2):
        assert metrics["approx_kl"] == pytest.approx(0, abs=1e-10)
        assert metrics["clip_fraction"] == 0


@pytest.mark.parametrize("shared", [True, False])
def test_truncated_episode_is_valued_with_its_hidden_state(shared: bool) -> None:
    agent = filled(make_loop("lstm", rows=16, n_steps=45, epochs=2, toy=Chain, shared=shared), rounds=1)
    kept, hidden, most = agent.rollout, agent.rollout.hidden, 0.0
    observed = rollout_obs(kept)
    assert kept.truncated.any()
    last = torch.nn.functional.one_hot((observed.argmax(-1) + 2 * kept.actions - 1).clamp(0, 7), 8).float()
    with torch.no_grad():
        for t in range(45):
            _, _, hidden = agent.network(observed[t], hidden.masked_fill(kept.episode_start[t].unsqueeze(1), 0.0))
            value, feed_forward = (agent.network(last[t], past)[1] for past in (hidden, torch.zeros_like(hidden)))
            cut = kept.truncated[t]
            torch.testing.assert_close(kept.bootstrap[t, cut], value[cut], atol=1e-5, rtol=0)
            most = max([most, *(value - feed_forward)[cut].abs().tolist()])
    assert most > 1e-2, "memory counts"


def test_last_value_uses_the_hidden_state() -> None:
    """Values after the last step use the hidden states of the rows, which are zero only where an episode ended."""
    loop = make_loop("gru", rows=12, n_steps=21)
    agent = filled(loop, rounds=1)
    kept = agent.rollout
    with torch.no_grad():
        _, _, after = agent.network(rollout_obs(kept), kept.hidden, kept.episode_start)
        over = (kept.terminated | kept.truncated)[-1]
        _, value, _ = agent.network(loop.obs.obs, after.masked_fill(over.unsqueeze(1), 0.0))
    torch.testing.assert_close(agent.last_value, value, atol=1e-5, rtol=0)


def test_minibatches_are_whole_rows() -> None:
    """12 rows of 21 steps: 63 steps are 3 rows, so 4 gradient steps per epoch; at least one row."""
    for size, steps in ((63, 4), (0.5, 2), (2, 12)):
        agent = filled(make_loop("gru", rows=12, n_steps=21, batch_size=size, epochs=1), rounds=0)
        agent.learn()
        assert {int(kept["step"]) for kept in agent.state()["optimizer"].values()} == {steps}, size


def test_microbatches_give_the_gradient_of_the_whole_minibatch(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"optimizer": "sgd", "epochs": 2, "batch_size": 1.0, "rows": 12, "n_steps": 21}
    whole, parts = (filled(make_loop("lstm", **settings), rounds=1) for _ in range(2))
    metrics = whole.learn()
    monkeypatch.setattr(ppo, "microbatch_size", lambda device: 5 * 21)
    monkeypatch.setattr(rollout, "MIN_ROWS", 1)
    assert parts.learn() == pytest.approx(metrics, rel=1e-4, abs=1e-6)
    for name, weight in parts.parameters().items():
        torch.testing.assert_close(weight, whole.parameters()[name], atol=1e-6, rtol=0, msg=name)


@pytest.mark.parametrize(
    ("explore", "shared"),
    [
        pytest.param(None, True, id="shared"),
        pytest.param(RND, False, id="apart, rnd"),
        pytest.param(None, False, id="apart", marks=pytest.mark.long),
        pytest.param(RND, True, id="shared, rnd", marks=pytest.mark.long),
    ],
)
def test_resume_is_bit_identical(explore: ExploreSpec | None, shared: bool) -> None:
    settings: dict[str, Any] = {"explore": explore, "shared": shared, "rows": 12, "n_steps": 11, "epochs": 2}
    whole = make_loop("lstm", **settings)
    whole.run(11 * 2 + 5)
    saved = whole.state()
    history = whole.run(11 * 2)
    resumed = make_loop("lstm", seed=99, **settings)
    resumed.run(7)
    resumed.restore(saved)
    assert resumed.run(11 * 2) == history
    assert len(history) == 2
    assert differing_leaves(whole.state(), resumed.state()) == []
