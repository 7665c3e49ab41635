"""Training with and without fast paths agrees within float tolerance."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agents.toy_envs import Chain
from agents.training_loop import TrainingLoop
from townlet.agents.agent import AgentContext
from townlet.agents.dqn import Dqn, DqnSettings
from townlet.agents.make import accelerate, make_agent
from townlet.agents.ppo import Ppo, PpoSettings
from townlet.explore.spec import ExploreSpec
from townlet.interfaces.counters import Counters
from townlet.nets.spec import MlpSpec
from townlet.rng import Streams

UPDATES = 10
CASES = {
    "ppo": PpoSettings(n_steps=16, epochs=2, gamma=0.9),
    "ppo apart": PpoSettings(n_steps=16, epochs=1, shared=False, value_clip=0.2, target_kl=0.02),
    "dqn": DqnSettings(warmup=64, update_every=4, gradient_steps=2, n_step=2, target_every=7),
    "dqn, soft target": DqnSettings(warmup=64, update_every=4, gradient_steps=3, polyak=0.1),
}


def train(settings: Any, accelerate: bool) -> tuple[TrainingLoop, list[dict[str, float]]]:
    env, counters = Chain(16), Counters(budget=10_000)
    context = AgentContext(MlpSpec(hidden=(32, 16), activation="tanh"), ExploreSpec(), env, counters, Streams(3), 20)
    agent = make_agent(settings.model_copy(update={"accelerate": accelerate}), context)
    assert isinstance(agent, Ppo | Dqn)
    assert (agent.accelerated is not None) == accelerate
    loop = TrainingLoop(agent, env, counters)
    metrics: list[dict[str, float]] = []
    while len(metrics) < UPDATES:
        metrics += loop.run(agent.update_interval)
    return loop, metrics


@pytest.mark.parametrize("case", CASES)
def test_accelerated_updates_match_plain_ones(case: str) -> None:
    """Rounding differs; the environment is small enough that it changes no action within these updates."""
    (fast, quick), (readable, slow) = (train(CASES[case], accelerate) for accelerate in (True, False))
    assert len(quick) == len(slow) == UPDATES
    for number, (one, other) in enumerate(zip(quick, slow, strict=True)):
        assert one == pytest.approx(other, rel=2e-3, abs=2e-4), f"update {number}"
    for name, weight in fast.agent.parameters().items():
        torch.testing.assert_close(weight, readable.agent.parameters()[name], rtol=1e-2, atol=1e-3, msg=name)


def test_subclasses_have_no_fast_path_that_bypasses_their_overrides() -> None:
    class Scaled(Dqn):
        def _q(self, obs: torch.Tensor) -> torch.Tensor:
            return 3 * super()._q(obs)

    env, counters = Chain(4), Counters()
    context = AgentContext(MlpSpec(hidden=(8,)), ExploreSpec(), env, counters, Streams(3), 20)
    agent = Scaled(DqnSettings(), context)
    accelerate(agent)
    assert agent.accelerated is None
