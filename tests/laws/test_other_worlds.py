"""A policy in a world with other places and meters than that of its training: everything is mapped by name."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from examples import examples
from laws import brief, law
from laws.worlds import Document, Draw, compiled, documents
from townlet.agents.policy import Policy
from townlet.errors import ConfigError, TownletError
from townlet.tasks.transfer import TYPED, MappedPolicy, map_interface
from townlet.town.engines.engine import make_engine
from townlet.town.world.tables import World

NEW_PLACES = ("Kiosk", "Arcade")
NEW_METER = "focus"
ROWS, STEPS = 8, 6  # of the eager torch engine, which compiles nothing for a new number of meters
pairs = settings(law, max_examples=examples(8, 60))


class RandomNetwork(nn.Module):
    """Outputs of a random linear layer."""

    def __init__(self, observation: int, actions: int) -> None:
        super().__init__()
        self.layer = nn.Linear(observation, actions).requires_grad_(False)

    def initial_hidden(self, rows: int) -> Tensor:
        return torch.zeros(rows, 0)

    def forward(self, obs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(obs), hidden


def names(world: World) -> set[str]:
    return {*world.affordances, *world.meters}


def free_cells(doc: Document) -> list[list[int]]:
    taken = [place["cell"] for place in doc["affordances"]]
    cells = [list(cell) for cell in np.ndindex(*doc["map"].get("size", [0]))]
    return [cell for cell in cells if cell not in taken]


@st.composite
def worlds_with_unseen_parts(draw: Draw) -> tuple[World, World]:
    """A world, and the same one with other orders of places and meters, and with new ones.

    Its observation has no untyped window: that shows a place of any name.
    """
    doc = draw(documents())
    assume(doc["map"].get("layout") != "shuffled")  # more places are shuffled otherwise
    doc["observation"] = draw(st.sampled_from(["full", "shuffled", "foggy"]))
    other = deepcopy(doc)
    new = [{"name": name, "at_end": {doc["lethal"][0]: 0.1}} for name in NEW_PLACES[: draw(st.integers(0, 2))]]
    if doc["map"]["kind"] == "grid":
        cells = draw(st.permutations(free_cells(doc)))
        new = [{**place, "cell": cell} for place, cell in zip(new, cells, strict=False)]
    new_meters = [{"name": NEW_METER, "decay": 0.01}] if draw(st.booleans()) else []
    other["affordances"] = draw(st.permutations([*doc["affordances"], *new]))
    other["meters"] = draw(st.permutations([*doc["meters"], *new_meters]))
    return compiled(doc), compiled(other)


@pairs
@given(worlds_with_unseen_parts(), st.integers(0, 2**32 - 1), st.sampled_from(["values", "discrete"]), st.booleans())
def test_an_agent_acts_as_in_its_own_world_if_only_the_order_and_unseen_places_differ(
    worlds: tuple[World, World], seed: int, kind: Any, greedy: bool
) -> None:
    own, other = worlds
    torch.manual_seed(seed)
    network = RandomNetwork(own.layout.size, len(own.actions))
    mapping = map_interface(other, own, "run")
    if mapping is None:
        assert (own.affordances, own.meters) == (other.affordances, other.meters)
        return
    assert {*mapping.unobserved} == names(other) - names(own)
    assert mapping.missing == ()
    generators = [torch.Generator().manual_seed(seed) for _ in worlds]
    policies = Policy(network, kind, generators[0]), MappedPolicy(network, kind, generators[1], mapping)
    engines = [make_engine(world, ROWS, "torch") for world in worlds]
    for engine in engines:
        engine.reset(seed)
    known = [other.actions.index(action) for action in own.actions]
    for _ in range(STEPS):
        seen, there = [(engine.obs.clone(), engine.mask.clone()) for engine in engines]
        assert torch.equal(mapping.observation(there[0]), seen[0])
        assert torch.equal(mapping.mask(*there), seen[1])
        outputs, shown = policies[0].outputs(*seen), policies[1].outputs(*there)
        for name, values in outputs.items():
            assert torch.equal(shown[name][:, known][seen[1]], values[seen[1]])
            best = shown[name].masked_fill(~there[1], -torch.inf).amax(-1)  # what the page calls its favorite
            assert torch.equal(best, values.masked_fill(~seen[1], -torch.inf).amax(-1))
        assert torch.allclose(shown["probabilities"].sum(-1), torch.ones(ROWS))
        chosen = [policies[0].act(*seen, greedy=greedy), policies[1].act(*there, greedy=greedy)]
        assert [own.actions[a] for a in chosen[0]] == [other.actions[a] for a in chosen[1]]
        for engine, actions in zip(engines, chosen, strict=True):
            engine.step(actions.numpy())


@st.composite
def edited_worlds(draw: Draw) -> tuple[World, World]:
    """A world, and one in which places were added, removed, renamed, replaced and put in another order."""
    doc = draw(documents())
    places = deepcopy(doc["affordances"])
    needed = [place for place in places if {*place["at_end"]} & {*doc["lethal"]}]
    for place in [one for one in places if one not in needed]:
        change = draw(st.sampled_from(["keep", "remove", "rename"]))
        if change == "remove":
            places.remove(place)
        elif change == "rename":
            place["name"] += " B"
    new: list[Document] = [{"name": name} for name in NEW_PLACES[: draw(st.integers(0, 2))]]
    kept = {**doc, "affordances": places}
    if doc["map"].get("layout", "shuffled") == "fixed":
        new = [{**place, "cell": cell} for place, cell in zip(new, free_cells(kept), strict=False)]
    try:
        return compiled(doc), compiled({**kept, "affordances": draw(st.permutations([*places, *new]))})
    except ConfigError:
        reject()  # too many places for the map


def named_values(world: World, obs: Tensor, known: set[str]) -> dict[Any, float]:
    """The values of an observation by block, cell and name; unknown places count as none."""
    values: dict[Any, float] = {}
    for block in world.layout:
        for index in np.ndindex(*block.shape):
            key: Any = (block.name, *index)
            if block.name in TYPED:
                place = [*world.affordances, "none"][index[-1]]
                key = (block.name, *index[:-1], place if place in known else "none")
            elif block.name == "meters":
                key = (block.name, world.meters[index[-1]])
            values[key] = values.get(key, 0.0) + float(world.layout.view(obs, block.name)[index])
    return values


@pairs
@given(edited_worlds(), st.integers(0, 2**32 - 1))
def test_observations_of_an_edited_world_are_mapped_by_name(worlds: tuple[World, World], seed: int) -> None:
    own, other = worlds
    mapping = map_interface(other, own, "run")
    if mapping is None:
        assert own.affordances == other.affordances
        return
    assert {*mapping.unobserved} == names(other) - names(own)
    assert {*mapping.missing} == names(own) - names(other)
    known = names(own) & names(other)
    engine = make_engine(other, ROWS, "torch")
    engine.reset(seed)
    policy = MappedPolicy(RandomNetwork(own.layout.size, len(own.actions)), "values", torch.Generator(), mapping)
    for _ in range(3):
        for raw, mapped in zip(engine.obs, mapping.observation(engine.obs), strict=True):
            expected = named_values(other, raw, known)
            found = named_values(own, mapped, names(own))
            assert {key: found[key] for key in expected} == expected
            assert not any(value for key, value in found.items() if key not in expected)
        actions = policy.act(engine.obs, engine.mask)
        assert all(engine.mask[row, action] for row, action in enumerate(actions))
        assert not {other.actions[a] for a in actions} - {*own.actions}
        engine.step(actions.numpy())


@brief
@given(documents(), st.data())
def test_a_renamed_meter_is_not_taken_for_another(doc: Document, data: st.DataObject) -> None:
    renamed = data.draw(st.sampled_from([meter["name"] for meter in doc["meters"]]))
    other = json.loads(json.dumps(doc).replace(f'"{renamed}"', '"verve"'))
    with pytest.raises(TownletError, match=f"there is no meter '{renamed}'"):
        map_interface(compiled(other), compiled(doc), "run")
