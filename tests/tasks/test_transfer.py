"""Policies in towns with places and meters that did not exist in training.

Towns with another meter run in the torch engine, because Numba would compile its kernels for this number of meters.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from townlet.agents.policy import Policy
from townlet.errors import TownletError
from townlet.runs.folder import SHIPPED, Run
from townlet.tasks.town import PolicyPlayer
from townlet.tasks.transfer import map_interface
from townlet.town.engines.engine import Engine, make_engine
from townlet.town.state import to_numpy
from townlet.town.world.load import from_text
from townlet.town.world.tables import World
from townlet.train.policies import load_policy

EXTENDED = """
meters: [{name: curiosity, start: 0.5, decay: 0.001}]
affordances:
  - {name: Library, cell: [3, 5], ticks: 2, each_tick: {mood: .1}, at_end: {curiosity: .2}}
  - {name: Pool, cell: [0, 6], price: .02, each_tick: {fitness: .1}}
"""
OBSERVATIONS = ("full", "partial", "shuffled", "[position_onehot, {name: window, size: 3}, meters, age]")


def world(observation: str, extension: str = "") -> World:
    return from_text(f"extends: town\nobservation: {observation}\n{extension}", "test")


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_mapped_observations_are_those_of_the_training_world(observation: str) -> None:
    trained_in, extended = world(observation), world(observation, EXTENDED)
    mapping = map_interface(extended, trained_in, "run")
    assert mapping is not None
    assert mapping.unobserved == ("Library", "Pool", "curiosity")
    engines = [make_engine(trained_in, 64), make_engine(extended, 64, "torch")]
    for engine in engines:
        engine.reset(7)
    rng, here = np.random.default_rng(0), False
    for _ in range(75):
        known, other = (torch.from_numpy(to_numpy(engine.obs)) for engine in engines)
        blocks = [b for b in trained_in.layout if b.name != "window"]  # which shows that there is a place, not which
        mapped = mapping.observation(other)
        for block in blocks:
            assert torch.equal(mapped[:, block.slice], known[:, block.slice]), block.name
        here |= bool((to_numpy(engines[1].peek()["cell"]) == 43).any())  # the Library's cell
        actions = sample(engines[0], rng)
        for engine in engines:
            engine.step(actions)
    assert here, "no row was in a place that is not observed"


def sample(engine: Engine, rng: np.random.Generator) -> NDArray[np.int64]:
    """A random valid action of each row."""
    mask = to_numpy(engine.mask)
    actions: NDArray[np.int64] = np.argmax(rng.random(mask.shape) * mask, axis=1)
    return actions


def test_the_shipped_agent_lives_in_a_town_with_new_places() -> None:
    trained = load_policy(Run.open("elder", SHIPPED))
    assert trained.in_world(trained.world) is trained
    assert type(trained.policy()) is Policy  # nothing is mapped in its own world
    extended = world("full", f"max_steps: 1000\n{EXTENDED}")
    adapted = trained.in_world(extended)
    player, engine = PolicyPlayer(adapted.policy(1), adapted.use_greedy()), make_engine(extended, 20, "torch")
    engine.reset(1)
    for _ in range(1000):
        engine.step(player.act(engine))
        assert not to_numpy(engine.terminated).any()
    assert to_numpy(engine.truncated).all()
    obs = torch.rand(3, extended.layout.size)
    assert adapted.in_world(trained.world).unobserved == ()
    assert adapted.act(obs).shape == (3,)
    assert adapted.values(obs).shape == (3,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("map: {size: [9, 8]}", "the map has 9×8 cells, in training it had 8×8"),
        ("observation: partial", "'position_onehot' is not observed"),
        ("observation: [position_onehot, meters]", "'affordance_here' is not observed"),
    ],
)
def test_differences_that_a_policy_cannot_ignore_are_listed(change: str, message: str) -> None:
    other = from_text(f"extends: town\n{change}", "test")
    with pytest.raises(TownletError, match=message):
        map_interface(other, world("full"), "my-run")
    missing = from_text("extends: town\nremove: [Gym]\n", "test")
    mapping = map_interface(missing, world("full"), "my-run")
    assert mapping is not None
    assert (mapping.unobserved, mapping.missing) == ((), ("Gym",))


def test_a_missing_meter_is_named() -> None:
    with pytest.raises(TownletError, match="there is no meter 'curiosity'"):
        map_interface(world("full"), world("full", EXTENDED), "my-run")
