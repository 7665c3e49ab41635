"""Agents that look at pictures: dqn and ppo with a network of convolutions, and a memory of bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from agents.lives import Life, differences, seen_in, success
from agents.toys import Toy
from townlet.agents.agent import AgentContext
from townlet.agents.dqn import Dqn, DqnSettings
from townlet.agents.ppo import Ppo, PpoSettings
from townlet.explore.spec import EpsilonSpec, ExploreSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Discrete, MaskedObs
from townlet.nets.spec import CnnSpec
from townlet.rng import Streams

torch.set_num_threads(1)
SMALL = CnnSpec(name="nature", channels=(4, 8, 8), features=32)
KINDS: dict[str, Any] = {
    "dqn": (Dqn, DqnSettings(lr=2e-3, gamma=0.5, warmup=64, update_every=1, target_every=20, batch_size=32)),
    "ppo": (Ppo, PpoSettings(lr=5e-3, n_steps=8, entropy_coef=0.0)),
}


class Side(Toy):
    """One step an episode: a light in a picture of 36 × 36, left or right; the same side pays."""

    layout = ObservationLayout.of(("screen", (1, 36, 36), 0.0, 1.0, "picture", (), 255))
    actions = Discrete(("left", "right"))

    def _begin(self, rows: Tensor) -> None:
        pass

    def _move(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        over = torch.ones(self.rows, dtype=torch.bool)
        return torch.where(actions == (self.chance < 0.5), 1.0, -1.0), over, ~over

    def _seen(self) -> MaskedObs:
        column = (self.chance * 18).long() + torch.where(self.chance < 0.5, 18, 0)
        picture = torch.full((self.rows, 36, 36), 17.0)
        picture[torch.arange(self.rows), 10:24, column.clamp_(max=35)] = 200.0
        return MaskedObs(picture.flatten(1) / 255, torch.ones(self.rows, 2, dtype=torch.bool))


def life(name: str, seed: int = 1) -> Life:
    env, counters = Side(8), Counters(budget=10_000)
    explore = ExploreSpec(action_selection=EpsilonSpec(decay=0.9, end=0.05))
    kind, settings = KINDS[name]
    return Life(kind(settings, AgentContext(SMALL, explore, env, counters, Streams(seed), 1)), env, counters)


@pytest.mark.parametrize("name", KINDS)
def test_a_side_is_seen(name: str) -> None:
    trained = life(name)
    trained.go_on(240)
    assert success(trained.agent.policy(), Side(32), steps=4) > 0.95


@pytest.mark.parametrize("name", KINDS)
def test_train_stop_and_resume_gives_the_same_bits(name: str) -> None:
    whole, resumed = life(name), life(name, seed=99)
    whole.go_on(21)
    saved = whole.state()
    figures = whole.go_on(16)
    resumed.restore(saved)
    assert resumed.go_on(16) == figures
    assert differences(whole.state(), resumed.state()) == []


def test_replay_keeps_a_byte_for_each_value_and_gives_back_what_was_seen() -> None:
    trained = life("dqn")
    trained.go_on(3)
    agent = trained.agent
    assert isinstance(agent, Dqn)
    kept = agent.state()["memory"]["storage"]["columns"]
    assert {name for name in kept if "obs" in name} == {"obs_bytes", "next_obs_bytes"}
    assert kept["obs_bytes"].dtype == torch.uint8
    drawn = agent.buffer.sample(64)
    assert torch.isin(drawn.obs, torch.tensor([17.0, 200.0]) / 255).all()


def test_a_rollout_keeps_a_byte_for_each_value_and_gives_back_what_was_seen() -> None:
    trained = life("ppo")
    trained.go_on(3)
    agent = trained.agent
    assert isinstance(agent, Ppo)
    kept = agent.state()["rollout"]["storage"]["columns"]
    assert {name for name in kept if "obs" in name} == {"obs_bytes"}
    assert kept["obs_bytes"].dtype == torch.uint8
    assert torch.equal(seen_in(agent.rollout)[2], agent.rollout.gather(torch.arange(16, 24)).obs)
    assert torch.isin(seen_in(agent.rollout), torch.tensor([17.0, 200.0]) / 255).all()
