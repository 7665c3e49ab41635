"""Image observations: dqn and ppo with convolutional networks, stored as bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from agents.toy_envs import ToyEnv
from agents.training_loop import TrainingLoop, differing_leaves, rollout_obs, success_rate
from townlet.agents.agent import AgentContext
from townlet.agents.dqn import Dqn, DqnSettings
from townlet.agents.ppo import Ppo, PpoSettings
from townlet.explore.spec import EpsilonSpec, ExploreSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Discrete, MaskedObs
from townlet.nets.spec import CnnSpec
from townlet.rng import Streams

SMALL = CnnSpec(name="nature", channels=(4, 8, 8), features=32)
KINDS: dict[str, Any] = {
    "dqn": (Dqn, DqnSettings(lr=2e-3, gamma=0.5, warmup=64, update_every=1, target_every=20, batch_size=32)),
    "ppo": (Ppo, PpoSettings(lr=5e-3, n_steps=8, entropy_coef=0.0)),
}


class LightSide(ToyEnv):
    """One step per episode: a light in an image of 36 × 36, left or right; the same side gives reward 1."""

    layout = ObservationLayout.of(("screen", (1, 36, 36), 0.0, 1.0, "picture", (), 255))
    actions = Discrete(("left", "right"))

    def _start(self, rows: Tensor) -> None:
        pass

    def _advance(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        over = torch.ones(self.rows, dtype=torch.bool)
        return torch.where(actions == (self.draw < 0.5), 1.0, -1.0), over, ~over

    def _observe(self) -> MaskedObs:
        column = (self.draw * 18).long() + torch.where(self.draw < 0.5, 18, 0)
        picture = torch.full((self.rows, 36, 36), 17.0)
        picture[torch.arange(self.rows), 10:24, column.clamp_(max=35)] = 200.0
        return MaskedObs(picture.flatten(1) / 255, torch.ones(self.rows, 2, dtype=torch.bool))


def make_loop(name: str, seed: int = 1) -> TrainingLoop:
    env, counters = LightSide(8), Counters(budget=10_000)
    explore = ExploreSpec(action_selection=EpsilonSpec(decay=0.9, end=0.05))
    kind, settings = KINDS[name]
    return TrainingLoop(kind(settings, AgentContext(SMALL, explore, env, counters, Streams(seed), 1)), env, counters)


@pytest.mark.parametrize("name", KINDS)
def test_agent_learns_from_images(name: str) -> None:
    loop = make_loop(name)

    def check() -> None:
        assert success_rate(loop.agent.policy(), LightSide(32), steps=4) > 0.95

    loop.run_until(check, 240)


@pytest.mark.parametrize("name", KINDS)
def test_resume_is_bit_identical(name: str) -> None:
    whole, resumed = make_loop(name), make_loop(name, seed=99)
    whole.run(21)
    saved = whole.state()
    history = whole.run(16)
    resumed.restore(saved)
    assert resumed.run(16) == history
    assert differing_leaves(whole.state(), resumed.state()) == []


def test_replay_stores_images_as_bytes_and_restores_them() -> None:
    loop = make_loop("dqn")
    loop.run(3)
    agent = loop.agent
    assert isinstance(agent, Dqn)
    kept = agent.state()["replay"]["storage"]["columns"]
    assert {name for name in kept if "obs" in name} == {"obs_bytes", "next_obs_bytes"}
    assert kept["obs_bytes"].dtype == torch.uint8
    drawn = agent.buffer.sample(64)
    assert torch.isin(drawn.obs, torch.tensor([17.0, 200.0]) / 255).all()


def test_rollout_stores_images_as_bytes_and_restores_them() -> None:
    loop = make_loop("ppo")
    loop.run(3)
    agent = loop.agent
    assert isinstance(agent, Ppo)
    kept = agent.state()["rollout"]["storage"]["columns"]
    assert {name for name in kept if "obs" in name} == {"obs_bytes"}
    assert kept["obs_bytes"].dtype == torch.uint8
    assert torch.equal(rollout_obs(agent.rollout)[2], agent.rollout.gather(torch.arange(16, 24)).obs)
    assert torch.isin(rollout_obs(agent.rollout), torch.tensor([17.0, 200.0]) / 255).all()
