"""Whole episodes: what can be learned from is exactly what has ended, with the returns of the definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from memory import law
from memory.script import ACTIONS, DIES, GOES_ON, TIME_OUT, Script, same, scripts, through_a_file
from townlet.errors import TownletError
from townlet.memory.lives import Lives


def bootstrap(t: int, row: int) -> float:
    return float((2 * t + row) % 9 - 4)


def make(script: Script, slots: int = 2) -> Lives:
    return Lives(script.rows, 2, ACTIONS, slots=slots)


def feed(lives: Lives, script: Script, start: int = 0, stop: int | None = None, late: bool = False) -> Lives:
    """With `late` the step after an end is void."""
    for t, step in enumerate(script.steps(start, stop), start):
        void = torch.tensor([late and is_void(script, t, row) for row in range(script.rows)])
        lives.acted(step.obs, step.mask, step.actions, step.obs[:, 0])
        worth = torch.tensor([bootstrap(t, row) for row in range(script.rows)]) * step.truncated
        lives.observed(step.reward, step.intrinsic, step.ended & ~void, worth, void if late else None)
    return lives


def is_void(script: Script, t: int, row: int) -> bool:
    """A row is void in the step after its end, and in no other."""
    return t > 0 and script.ends[t - 1][row] != GOES_ON and not is_void(script, t - 1, row)


def naive(script: Script, t: int, row: int, gamma: float, weight: float) -> float | None:
    """The return from step t on, or None where the episode did not end."""
    total, factor = 0.0, 1.0
    for k in range(t, len(script.ends)):
        total += factor * (script.reward(k, row) + weight * script.intrinsic(k, row))
        factor *= gamma
        if script.ends[k][row] != GOES_ON:
            return total + (factor * bootstrap(k, row) if script.ends[k][row] == TIME_OUT else 0.0)
    return None


def learnable(lives: Lives, gamma: float, weight: float = 0.0, whole: bool = False) -> dict[float, float]:
    """The returns by moment; no moment may stand there twice."""
    places = lives.places()
    moments = lives.gather(places).obs[:, 0].tolist()
    assert len({*moments}) == len(moments)
    returns = lives.returns(gamma, weight, whole).view(-1).take(places) if len(places) else torch.zeros(0)
    return dict(zip(moments, returns.tolist(), strict=True))


@law
@given(scripts(), st.sampled_from((0.0, 0.5, 1.0)), st.sampled_from((0.0, 0.25)), st.integers(0, 30))
def test_returns_are_those_of_ended_episodes(script: Script, gamma: float, weight: float, cut: int) -> None:
    lives, steps, found = make(script), len(script.ends), {}
    feed(lives, script, 0, min(cut, steps))
    found |= learnable(lives, gamma, weight)
    lives.forget()
    feed(lives, script, min(cut, steps))
    later = learnable(lives, gamma, weight)
    assert not found.keys() & later.keys(), "nothing is learned from twice"
    found |= later
    expected = {
        script.moment(t, row): worth
        for t in range(steps)
        for row in range(script.rows)
        if (worth := naive(script, t, row, gamma, weight)) is not None
    }
    assert found == pytest.approx(expected)


def test_every_step_of_an_episode_can_have_its_whole_return() -> None:
    script = Script([[0], [1], [0], [0], [2], [0]])
    lives = feed(make(script), script)
    found = learnable(lives, 0.5, whole=True)
    first, second = (naive(script, t, 0, 0.5, 0.0) for t in (0, 2))
    assert found == {0.0: first, 1.0: first, 2.0: second, 3.0: second, 4.0: second}


@law
@given(scripts())
def test_void_steps_leave_no_trace(script: Script) -> None:
    lives = feed(make(script), script, late=True)
    moments = lives.gather(lives.places()).obs[:, 0].tolist()
    assert not any(is_void(script, *script.place(moment)) for moment in moments)
    real = [(t, r) for t in range(len(script.ends)) for r in range(script.rows) if not is_void(script, t, r)]
    assert int(lives._at.sum()) == len(real)


@pytest.mark.parametrize("steps", [0, 3, 9])
def test_saved_half_way_it_goes_on_to_the_bit(steps: int) -> None:
    script = Script([[DIES if (t + 2 * r) % 5 == 4 else GOES_ON for r in range(3)] for t in range(20)])
    one, two = make(script), make(script)
    feed(one, script, 0, steps)
    feed(two, script, 0, 2)
    two.restore(through_a_file(one.state()))
    results: list[tuple[Tensor, ...]] = []
    for lives in (one, two):
        feed(lives, script, steps, 15)
        lives.forget()
        feed(lives, script, 15)
        results.append((*lives.gather(lives.places()), lives.returns(0.5).view(-1).take(lives.places())))
    assert same(results[0], results[1])
    assert len(results[0][0])
    assert one.episodes == two.episodes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"at": torch.tensor([9, 9])}, "further than what it holds"),
        ({"columns": {}}, "does not hold obs"),
        ({"at": torch.zeros(3, dtype=torch.int64)}, "'at' was saved as"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change: dict[str, Any], words: str) -> None:
    script = Script([[0, 0], [1, 0]])
    state = feed(make(script), script).state()
    with pytest.raises(TownletError, match=words):
        make(script).restore(state | change)


def test_nothing_is_learned_from_episodes_that_were_broken_off() -> None:
    script = Script([[GOES_ON], [DIES], [GOES_ON], [GOES_ON], [DIES]])
    lives = feed(make(script), script, 0, 4)
    lives.cut()
    feed(lives, script, 4)
    assert sorted(learnable(lives, 0.5)) == [0, 1, 4]
