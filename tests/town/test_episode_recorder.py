"""Recordings equal what happened, on both engines, across episode ends and interruptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def first_rows(outputs: Sequence[torch.Tensor], rows: int) -> torch.Tensor:
    return torch.stack([output[:rows] for output in outputs])


def recorded(world: str, engine: str, kept: int = 64, seed: int = 3) -> list[tuple[int, Recording, dict[str, Any]]]:
    """Recordings of random episodes, each with an independent log."""
    compiled = load(world, ["max_steps=25"])
    town = Town(compiled, ROWS, engine=engine, threads=1)
    mask = town.reset(seed).mask
    recorder = EpisodeRecorder(town, first_rows, rows=3, steps=kept)
    chance = torch.Generator().manual_seed(seed)
    notes: list[dict[str, Any]] = [{"cell": [], "meters": [], "actions": [], "reward": []} for _ in range(3)]
    found = []
    for _ in range(60):
        before = town.engine.peek("cell", "meters")
        actions = torch.multinomial(mask.float(), 1, generator=chance).squeeze(1)
        outputs = torch.rand(ROWS, len(compiled.actions), generator=chance)
        for row, note in enumerate(notes):
            note["cell"].append(int(before["cell"][row]))
            note["meters"].append(np.array(before["meters"][row]))
            note["actions"].append(int(actions[row]))
        step = town.step(actions)
        mask = step.mask
        recorder.record(actions, outputs)
        ended = town.final_obs()
        for row, note in enumerate(notes):
            note["reward"].append(float(step.reward[row]))
        for row in ended.rows.tolist():
            if row < 3:
                note = notes[row]
                note["last"] = town.final_meters(ended)[ended.rows.tolist().index(row)].numpy()
                found.append((row, recorder.finish_episode(row), note))
                notes[row] = {"cell": [], "meters": [], "actions": [], "reward": []}
    return found


@pytest.mark.parametrize(
    ("world", "engine"),
    [*((w, "numba") for w in ("town", "town-foggy", "town-l3", "town-aspatial", "town-house")), ("town-l3", "torch")],
)
def test_recording_equals_an_independent_log(world: str, engine: str) -> None:
    found = recorded(world, engine)
    assert len(found) >= 6
    for _, recording, note in found:
        assert recording.age.tolist() == list(range(len(recording) + 1))
        assert recording.cell[:-1].tolist() == note["cell"]
        assert recording.actions.tolist() == note["actions"]
        np.testing.assert_array_equal(recording.meters[:-1], np.array(note["meters"]))
        np.testing.assert_array_equal(recording.meters[-1], note["last"])
        np.testing.assert_array_equal(recording.reward, np.array(note["reward"], np.float32))
        assert recording.mask[np.arange(len(recording)), recording.actions].all()


def test_long_episode_keeps_its_end() -> None:
    for _, recording, note in recorded("town", "numba", kept=10):
        assert len(recording) == min(10, len(note["actions"]))
        assert recording.actions.tolist() == note["actions"][-len(recording) :]
        assert recording.age[-1] == len(note["actions"])


def test_restored_recorder_continues_exactly() -> None:
    compiled = load("town", ["max_steps=30"])
    towns = [Town(compiled, 2, threads=1) for _ in range(2)]
    for town in towns:
        town.reset(1)
    recorders = [EpisodeRecorder(town, first_rows) for town in towns]
    wait, outputs = torch.full((2,), len(compiled.actions) - 1), torch.zeros(2, len(compiled.actions))
    episodes: list[list[bytes]] = [[], []]
    for n in range(75):
        if n == 50:  # the second continues in a new town with a new recorder
            state, recorder_state = towns[1].state(), recorders[1].state()
            towns[1] = Town(compiled, 2, threads=1)
            towns[1].restore(state)
            recorders[1] = EpisodeRecorder(towns[1], first_rows)
            recorders[1].restore(recorder_state)
        for town, recorder, kept in zip(towns, recorders, episodes, strict=True):
            town.step(wait)
            recorder.record(wait, outputs)
            kept += [recorder.finish_episode(row).to_bytes() for row in town.final_obs().rows.tolist()]
    assert episodes[0] == episodes[1]
    assert len(episodes[0]) == 4


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=400))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(TownletError, match="recorded episode"):
        Recording.from_bytes(data)
