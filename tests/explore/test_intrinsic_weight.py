"""Weight of the intrinsic reward: annealed only while episode lengths are steady and high."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from townlet.config.schedule import Schedule
from townlet.errors import TownletError
from townlet.explore.intrinsic_weight import IntrinsicWeight, make_intrinsic_weight
from townlet.explore.spec import AdaptiveWeightSpec, ScheduledWeightSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.vec_env import Episodes


def ended(*lengths: int) -> Episodes:
    """Episodes of these lengths that ended together, in rows 0, 1, …"""
    zeros = torch.zeros(len(lengths))
    return Episodes(torch.arange(len(lengths)), torch.tensor(lengths), zeros, zeros, zeros, zeros.bool(), zeros)


def adaptive(**settings: float) -> IntrinsicWeight:
    return make_intrinsic_weight(AdaptiveWeightSpec.model_validate(settings), Counters(), max_steps=500)


def test_scheduled_weight_follows_its_schedule() -> None:
    clock = Counters(budget=100)
    assert make_intrinsic_weight(ScheduledWeightSpec(value=0.3), clock, 500).value == 0.3
    fading = make_intrinsic_weight(ScheduledWeightSpec(value=Schedule(start=1.0, end=0.5)), clock, 500)
    clock.env_steps = 50
    assert fading.value == 0.75


def test_adaptive_weight_decays_from_the_hundredth_similar_and_long_episode_on() -> None:
    weight = adaptive()
    for _ in range(99):
        weight.on_episodes_end(ended(300))
    assert weight.value == 1.0
    weight.on_episodes_end(ended(300))
    assert weight.value == pytest.approx(0.99)
    weight.on_episodes_end(ended(300))
    assert weight.value == pytest.approx(0.99**2)


@pytest.mark.parametrize(
    ("lengths", "fades"),
    [
        ((60, 60), True),
        ((40, 40), False),  # steady and bad
        ((50, 50), False),  # the mean must be above 50
        ((51, 51), True),
        ((300, 500), False),  # good and unsteady
        ((290, 310), False),  # a variance of exactly 100
        ((291, 309), True),
    ],
)
def test_adaptive_weight_decays_only_while_episodes_are_similar_and_long(lengths: tuple[int, int], fades: bool) -> None:
    weight = adaptive()
    for _ in range(50):
        for length in lengths:
            weight.on_episodes_end(ended(length))
    assert (weight.value < 1.0) is fades


def test_adaptive_weight_stops_decaying_when_episodes_vary_again() -> None:
    weight = adaptive(episodes=5)
    for _ in range(6):
        weight.on_episodes_end(ended(300))
    assert weight.value == pytest.approx(0.99**2)
    for length in (20, 300, 300, 300, 300):
        weight.on_episodes_end(ended(length))  # the short episode stays in the window five times
    assert weight.value == pytest.approx(0.99**2)
    weight.on_episodes_end(ended(300))
    assert weight.value == pytest.approx(0.99**3)


def test_adaptive_weight_never_falls_below_the_minimum() -> None:
    weight = adaptive(episodes=2, factor=0.5, minimum=0.2)
    weight.on_episodes_end(ended(*[300] * 50))
    assert weight.value == 0.2


def test_mean_may_be_a_fraction_of_the_longest_episode() -> None:
    for length, fades in ((200, False), (300, True)):
        weight = adaptive(episodes=5, mean_fraction=0.5)
        weight.on_episodes_end(ended(*[length] * 5))
        assert (weight.value < 1.0) is fades


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 90), max_size=7), max_size=12))
def test_episodes_that_end_together_count_one_after_the_other(calls: list[list[int]]) -> None:
    spec: dict[str, float] = {"episodes": 4, "variance": 200.0, "mean": 40.0}
    together, apart = adaptive(**spec), adaptive(**spec)
    for call in calls:
        together.on_episodes_end(ended(*call))
        for length in call:
            apart.on_episodes_end(ended(length))
    assert together.value == pytest.approx(apart.value)
    past = [length for call in calls for length in call]
    judged = [torch.tensor(past[i - 3 : i + 1]).double() for i in range(3, len(past))]
    calm = sum(bool(w.var(correction=0) < 200 and w.mean() > 40) for w in judged)
    assert together.value == pytest.approx(0.99**calm)


@pytest.mark.parametrize("before", [2, 5])
def test_restored_weight_continues_exactly(before: int) -> None:
    one, two = adaptive(episodes=4), adaptive(episodes=4)
    one.on_episodes_end(ended(*[60] * before))
    two.restore(one.state())
    for length in (61, 60, 60, 62, 10, 60):
        one.on_episodes_end(ended(length, 60))
        two.on_episodes_end(ended(length, 60))
        assert one.value == two.value
    assert one.value < 1.0


def test_longer_window_is_rejected_on_restore() -> None:
    one = adaptive(episodes=5)
    one.on_episodes_end(ended(*[60] * 5))
    with pytest.raises(TownletError, match=r"shape \[5\], but explore.weight.episodes is 4"):
        adaptive(episodes=4).restore(one.state())


def test_minimum_above_the_start_is_rejected() -> None:
    with pytest.raises(ValidationError, match=r"`minimum` 0\.5 cannot be above 0\.2"):
        AdaptiveWeightSpec(start=0.2, minimum=0.5)
