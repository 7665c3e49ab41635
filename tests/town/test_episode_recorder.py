"""Lives on tape: what is kept is what happened, on both engines, across ends and interruptions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from townlet.errors import TownletError
from townlet.town.env import Town
from townlet.town.episode_recorder import EpisodeRecorder, Recording
from townlet.town.world.load import load

ROWS = 6


def first_rows(behind: Sequence[torch.Tensor], rows: int) -> torch.Tensor:
    return torch.stack([one[:rows] for one in behind])


def lived(world: str, engine: str, steps: int, kept: int = 64, seed: int = 3) -> list[tuple[int, Recording, dict]]:
    """Random lives: each with what an onlooker wrote down beside the tape."""
    compiled = load(world, ["max_steps=40"])
    town = Town(compiled, ROWS, engine=engine, threads=1)
    seen = town.reset(seed)
    tape = EpisodeRecorder(town, first_rows, rows=3, steps=kept)
    chance = torch.Generator().manual_seed(seed)
    notes = [{"cell": [], "meters": [], "actions": [], "reward": []} for _ in range(3)]
    found = []
    for _ in range(steps):
        before = town.engine.peek("cell", "meters")
        actions = torch.multinomial(seen.mask.float(), 1, generator=chance).squeeze(1)
        outputs = torch.rand(ROWS, len(compiled.actions), generator=chance)
        for row, note in enumerate(notes):
            note["cell"].append(int(before["cell"][row]))
            note["meters"].append(np.array(before["meters"][row]))
            note["actions"].append(int(actions[row]))
        step = town.step(actions)
        seen = step
        tape.record(actions, outputs)
        ended = town.final_obs()
        for row, note in enumerate(notes):
            note["reward"].append(float(step.reward[row]))
        for row in ended.rows.tolist():
            if row < 3:
                note = notes[row]
                note["last"] = town.final_meters(ended)[ended.rows.tolist().index(row)].numpy()
                found.append((row, tape.finish_episode(row), note))
                notes[row] = {"cell": [], "meters": [], "actions": [], "reward": []}
    return found


@pytest.mark.parametrize("engine", ["numba", "torch"])
@pytest.mark.parametrize("world", ["town", "town-foggy", "town-l3", "town-aspatial", "town-house"])
def test_a_recording_is_what_an_onlooker_saw(world: str, engine: str) -> None:
    found = lived(world, engine, 130)
    assert len(found) >= 6
    for _, life, note in found:
        assert life.age.tolist() == list(range(len(life) + 1))
        assert life.cell[:-1].tolist() == note["cell"]
        assert life.actions.tolist() == note["actions"]
        np.testing.assert_array_equal(life.meters[:-1], np.array(note["meters"]))
        np.testing.assert_array_equal(life.meters[-1], note["last"])
        np.testing.assert_array_equal(life.reward, np.array(note["reward"], np.float32))
        assert life.mask[np.arange(len(life)), life.actions].all()


def test_of_a_long_life_the_end_is_kept() -> None:
    for _, life, note in lived("town", "numba", 130, kept=10):
        assert len(life) == min(10, len(note["actions"]))
        assert life.actions.tolist() == note["actions"][-len(life) :]
        assert life.age[-1] == len(note["actions"])


def test_an_interrupted_tape_goes_on_exactly() -> None:
    compiled = load("town", ["max_steps=30"])
    towns = [Town(compiled, 2, threads=1) for _ in range(2)]
    for town in towns:
        town.reset(1)
    tapes = [EpisodeRecorder(town, first_rows) for town in towns]
    wait, outputs = torch.full((2,), len(compiled.actions) - 1), torch.zeros(2, len(compiled.actions))
    lives: list[list[bytes]] = [[], []]
    for n in range(75):
        if n == 50:  # the second goes on in a new town with a new tape
            state, tape_state = towns[1].state(), tapes[1].state()
            towns[1] = Town(compiled, 2, threads=1)
            towns[1].restore(state)
            tapes[1] = EpisodeRecorder(towns[1], first_rows)
            tapes[1].restore(tape_state)
        for town, tape, kept in zip(towns, tapes, lives, strict=True):
            town.step(wait)
            tape.record(wait, outputs)
            kept += [tape.finish_episode(row).to_bytes() for row in town.final_obs().rows.tolist()]
    assert lives[0] == lives[1]
    assert len(lives[0]) == 4


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=400))
def test_foreign_bytes_are_no_recording(data: bytes) -> None:
    with pytest.raises(TownletError, match="recorded episode"):
        Recording.from_bytes(data)
