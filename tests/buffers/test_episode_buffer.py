"""Episode buffer: exactly the steps of finished episodes are returned, with the returns of the definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from buffers import law
from buffers.scripted import ACTIONS, CONTINUES, TERMINATES, TRUNCATES, Script, same, saved_and_loaded, scripts
from townlet.buffers.episode_buffer import EpisodeBuffer
from townlet.errors import TownletError


def bootstrap(t: int, row: int) -> float:
    return float((2 * t + row) % 9 - 4)


def make(script: Script, slots: int = 2) -> EpisodeBuffer:
    return EpisodeBuffer(script.rows, 2, ACTIONS, slots=slots)


def feed(
    buffer: EpisodeBuffer, script: Script, start: int = 0, stop: int | None = None, autoreset_steps: bool = False
) -> EpisodeBuffer:
    """With `autoreset_steps` the step after an end is an autoreset step."""
    for t, step in enumerate(script.steps(start, stop), start):
        autoreset = torch.tensor([autoreset_steps and is_autoreset(script, t, row) for row in range(script.rows)])
        buffer.add_action(step.obs, step.mask, step.actions, step.obs[:, 0])
        final_value = torch.tensor([bootstrap(t, row) for row in range(script.rows)]) * step.truncated
        buffer.add_outcome(
            step.reward, step.intrinsic, step.ended & ~autoreset, final_value, autoreset if autoreset_steps else None
        )
    return buffer


def is_autoreset(script: Script, t: int, row: int) -> bool:
    """Whether a step follows the end of an episode, and is not such a step's successor."""
    return t > 0 and script.ends[t - 1][row] != CONTINUES and not is_autoreset(script, t - 1, row)


def naive(script: Script, t: int, row: int, gamma: float, weight: float) -> float | None:
    """The return from step t on, or None where the episode did not end."""
    total, factor = 0.0, 1.0
    for k in range(t, len(script.ends)):
        total += factor * (script.reward(k, row) + weight * script.intrinsic(k, row))
        factor *= gamma
        if script.ends[k][row] != CONTINUES:
            return total + (factor * bootstrap(k, row) if script.ends[k][row] == TRUNCATES else 0.0)
    return None


def finished_returns(
    buffer: EpisodeBuffer, gamma: float, weight: float = 0.0, whole: bool = False
) -> dict[float, float]:
    """Returns by number of the observation; no number may occur twice."""
    index = buffer.indices()
    numbers = buffer.gather(index).obs[:, 0].tolist()
    assert len({*numbers}) == len(numbers)
    returns = buffer.returns(gamma, weight, whole).view(-1).take(index) if len(index) else torch.zeros(0)
    return dict(zip(numbers, returns.tolist(), strict=True))


@law
@given(scripts(), st.sampled_from((0.0, 0.5, 1.0)), st.sampled_from((0.0, 0.25)), st.integers(0, 30))
def test_returns_are_those_of_ended_episodes(script: Script, gamma: float, weight: float, cut: int) -> None:
    buffer, steps = make(script), len(script.ends)
    feed(buffer, script, 0, min(cut, steps))
    found = finished_returns(buffer, gamma, weight)
    buffer.discard_finished_episodes()
    feed(buffer, script, min(cut, steps))
    later = finished_returns(buffer, gamma, weight)
    assert not found.keys() & later.keys(), "no step is returned twice"
    found |= later
    expected = {
        script.number(t, row): worth
        for t in range(steps)
        for row in range(script.rows)
        if (worth := naive(script, t, row, gamma, weight)) is not None
    }
    assert found == pytest.approx(expected)


def test_every_step_of_an_episode_can_have_its_whole_return() -> None:
    script = Script([[0], [1], [0], [0], [2], [0]])
    buffer = feed(make(script), script)
    found = finished_returns(buffer, 0.5, whole=True)
    first, second = (naive(script, t, 0, 0.5, 0.0) for t in (0, 2))
    assert found == {0.0: first, 1.0: first, 2.0: second, 3.0: second, 4.0: second}


@law
@given(scripts())
def test_autoreset_steps_are_not_stored(script: Script) -> None:
    buffer = feed(make(script), script, autoreset_steps=True)
    numbers = buffer.gather(buffer.indices()).obs[:, 0].tolist()
    assert not any(is_autoreset(script, *script.locate(number)) for number in numbers)
    real = [(t, r) for t in range(len(script.ends)) for r in range(script.rows) if not is_autoreset(script, t, r)]
    assert int(buffer._written.sum()) == len(real)


@pytest.mark.parametrize("steps", [0, 3, 9])
def test_a_restored_buffer_continues_identically(steps: int) -> None:
    script = Script([[TERMINATES if (t + 2 * r) % 5 == 4 else CONTINUES for r in range(3)] for t in range(20)])
    one, two = make(script), make(script)
    feed(one, script, 0, steps)
    feed(two, script, 0, 2)
    two.restore(saved_and_loaded(one.state()))
    results: list[tuple[Tensor, ...]] = []
    for buffer in (one, two):
        feed(buffer, script, steps, 15)
        buffer.discard_finished_episodes()
        feed(buffer, script, 15)
        results.append((*buffer.gather(buffer.indices()), buffer.returns(0.5).view(-1).take(buffer.indices())))
    assert same(results[0], results[1])
    assert len(results[0][0])
    assert one.episodes == two.episodes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"written": torch.tensor([9, 9])}, "write positions beyond its stored steps"),
        ({"columns": {}}, "has other columns than obs"),
        ({"written": torch.zeros(3, dtype=torch.int64)}, "'written' was saved as"),
    ],
)
def test_state_that_does_not_fit_is_rejected(change: dict[str, Any], words: str) -> None:
    script = Script([[0, 0], [1, 0]])
    state = feed(make(script), script).state()
    with pytest.raises(TownletError, match=words):
        make(script).restore(state | change)


def test_open_episodes_can_be_discarded() -> None:
    script = Script([[CONTINUES], [TERMINATES], [CONTINUES], [CONTINUES], [TERMINATES]])
    buffer = feed(make(script), script, 0, 4)
    buffer.discard_unfinished_episodes()
    feed(buffer, script, 4)
    assert sorted(finished_returns(buffer, 0.5)) == [0, 1, 4]
