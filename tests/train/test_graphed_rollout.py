"""A graphed rollout equals a rollout that is collected step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from narrow import instance
from townlet.agents.ppo import Ppo
from townlet.interfaces.state import clone_state
from townlet.interfaces.vec_env import Episodes, FinalObs
from townlet.tasks.experiment import load_experiment
from townlet.town.env import Town
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.graphed_rollout import GraphedRollout, can_graph
from townlet.train.training import Training, build_training

WORDS = (
    "engine=torch", "rows=16", "threads=1", "network.hidden=[32, 32]", "change.max_steps=15", "agent.n_steps=12",
    "agent.shared=true", "agent.batch_size=192", "agent.entropy_coef=0.05",
)  # fmt: skip
COLUMNS = ("mask", "actions", "log_prob", "value", "reward", "terminated", "truncated")


class EpisodeCollector(NullListener):
    """Stores all reported episodes."""

    def __init__(self, t: Training) -> None:
        self._t, self.over, self.ends = t, list[Episodes](), list[NDArray[Any]]()

    def on_episodes(self, over: Episodes, ended: FinalObs) -> None:
        self.over.append(over)
        self.ends.append(instance(self._t.env, Town).final_meters(ended).numpy())

    def on_rollout_episodes(
        self, over: Episodes, final_values: NDArray[np.float32], ago: NDArray[np.float64] | None = None
    ) -> None:
        self.over.append(over)
        self.ends.append(final_values)


def ppo(t: Training) -> Ppo:
    return instance(t.agent, Ppo)


def both(*words: str) -> tuple[Training, Training]:
    """The same training twice: collected step by step, and graphed."""
    stepwise, graphed = (build_training(load_experiment("town:ppo", [*WORDS, *words])) for _ in range(2))
    graphed.graphed = GraphedRollout(graphed.agent, graphed.env, graphed.tracker, graphed.counters, graphed.count)
    return stepwise, graphed


def test_graphed_rollout_stores_and_reports_the_same() -> None:
    stepwise, graphed = both()
    collectors, truncations = (EpisodeCollector(stepwise), EpisodeCollector(graphed)), 0
    for _ in range(4):
        for t, collector in zip((stepwise, graphed), collectors, strict=True):
            collect(t, t.agent.update_interval, collector)
        one, other = ppo(stepwise).rollout, ppo(graphed).rollout
        for name in COLUMNS:
            assert torch.equal(getattr(one, name), getattr(other, name)), name
        assert torch.allclose(one.bootstrap[one.truncated], other.bootstrap[one.truncated], atol=1e-6)
        assert torch.allclose(ppo(stepwise).last_value, ppo(graphed).last_value, atol=1e-6)
        assert stepwise.counters == graphed.counters
        assert all(
            torch.equal(*sums)
            for sums in zip(stepwise.tracker.state().values(), graphed.tracker.state().values(), strict=True)
        )
        truncations += int(one.truncated.sum())
        for t in (stepwise, graphed):
            ppo(t).rollout.clear()
    for column in Episodes._fields:
        assert torch.equal(
            *(torch.cat([getattr(over, column) for over in collector.over]) for collector in collectors)
        ), column
    np.testing.assert_array_equal(np.concatenate(collectors[0].ends), np.concatenate(collectors[1].ends))
    assert truncations > 30  # episodes were truncated in the middle of rollouts


def test_graphed_update_is_the_same_update() -> None:
    """One minibatch contains all steps, so that their order does not matter."""
    stepwise, graphed = both("agent.epochs=3", "agent.clip=0.002")
    for t in (stepwise, graphed):
        collect(t, t.agent.update_interval, NullListener())
    metrics, found = stepwise.agent.learn(), graphed.agent.learn()
    assert metrics is not None
    assert found is not None
    for name, weight in stepwise.agent.parameters().items():
        assert torch.allclose(weight, graphed.agent.parameters()[name], atol=1e-6), name
    assert metrics["clip_fraction"] > 0
    for name, value in found.items():
        assert np.isclose(value, metrics[name], rtol=1e-3, atol=1e-5), (name, value, metrics[name])
    assert (stepwise.counters.updates, graphed.counters.updates) == (3, 3)


def test_values_are_clipped_if_value_clip_is_set_during_training() -> None:
    stepwise, graphed = both("agent.epochs=3")
    unclipped = build_training(load_experiment("town:ppo", [*WORDS, "agent.epochs=3"]))
    for t, clip in ((stepwise, 1e-3), (graphed, 1e-3), (unclipped, None)):
        collect(t, t.agent.update_interval, NullListener())
        t.agent.tune(t.agent.settings.model_copy(update={"value_clip": clip}))
        t.agent.learn()
    one, other, usual = (t.agent.parameters() for t in (stepwise, graphed, unclipped))
    assert all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)
    assert not all(torch.allclose(one[name], usual[name], atol=1e-6) for name in one)


@pytest.mark.parametrize(
    ("words", "can"),
    [
        ((), True),
        (("agent.shared=false",), False),  # values have a separate network
        (("agent.n_steps=16",), False),  # an episode of 15 steps could be truncated twice
        (("explore={bonus: rnd, weight: {name: scheduled, value: 0.1}}",), False),
        (("curriculum=adaptive",), False),
        (("engine=numba",), False),
    ],
)
def test_rollouts_are_graphed_only_where_possible(words: Sequence[str], can: bool) -> None:
    t = build_training(load_experiment("town:ppo", [*WORDS, *words]))
    parts = t.agent, t.env, t.curriculum, t.task.limit
    assert not can_graph(*parts)  # only on CUDA
    t.env.device = "cuda"  # as if CUDA were available
    assert can_graph(*parts) is can


@pytest.mark.parametrize("network", ["{name: mlp, hidden: [16]}", "{name: mlp, hidden: [16], recurrent: {size: 8}}"])
@pytest.mark.parametrize("shared", ["true", "false"])
def test_bfloat16_gives_similar_losses_step_by_step(network: str, shared: str) -> None:
    words = ("engine=numba", f"network={network}", f"agent.shared={shared}", "agent.batch_size=64")
    half, full = (
        build_training(load_experiment("town:ppo", [*WORDS, *words, f"agent.precision={precision}"]))
        for precision in ("bfloat16", "float32")
    )
    for t in (half, full):
        collect(t, t.agent.update_interval, NullListener())
    metrics, found = half.agent.learn(), full.agent.learn()
    assert metrics is not None
    assert found is not None
    assert metrics["value_loss"] == pytest.approx(found["value_loss"], rel=0.05)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # from torch's compiler
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_graphed_rollout_and_update_are_the_same_on_a_gpu() -> None:
    """Compiled, captured and launched as one graph."""
    words = ("device=cuda", "engine=compiled", "rows=256", "change.max_steps=30", "agent.n_steps=24")
    stepwise, graphed = (
        build_training(load_experiment("town:ppo", [*WORDS, *words, "agent.batch_size=6144"])) for _ in range(2)
    )
    assert graphed.graphed is not None
    stepwise.graphed = None
    for _ in range(3):
        for t in (stepwise, graphed):
            collect(t, t.agent.update_interval, NullListener())
        one, other = ppo(stepwise).rollout, ppo(graphed).rollout
        same = (one.actions == other.actions).all(0)  # rows whose sampled actions were not changed by rounding
        assert same.float().mean() > 0.9
        for name in ("log_prob", "value", "reward"):
            assert torch.allclose(getattr(one, name)[:, same], getattr(other, name)[:, same], atol=1e-3), name
        for t in (stepwise, graphed):
            assert t.agent.learn() is not None
        for name, weight in stepwise.agent.parameters().items():
            assert torch.allclose(weight, graphed.agent.parameters()[name], atol=1e-2), name
        graphed.restore(clone_state(stepwise.state()))
