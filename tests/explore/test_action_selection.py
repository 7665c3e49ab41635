"""Action selection: only valid actions, with the stated probabilities, and an ε that decays."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from narrow import instance
from townlet.config.schedule import Schedule
from townlet.errors import TownletError
from townlet.explore.action_selection import ActionSelector, EpsilonGreedy, make_action_selector, normalized_entropy
from townlet.explore.spec import BoltzmannSpec, EpsilonSpec, ExploreSpec, RndSpec, ScheduledWeightSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.vec_env import Episodes
from townlet.rng import Streams

Spec = EpsilonSpec | BoltzmannSpec
SPECS: tuple[Spec, ...] = (
    EpsilonSpec(start=0.0, end=0.0),
    EpsilonSpec(start=0.3),
    EpsilonSpec(start=1.0),
    BoltzmannSpec(temperature=0.0),
    BoltzmannSpec(temperature=0.7),
)


def selector(spec: Spec, rows: int, counters: Counters | None = None, seed: int = 1) -> ActionSelector:
    return make_action_selector(spec, rows, counters or Counters(), Streams(seed).torch("choice"))


def epsilon_greedy(spec: EpsilonSpec, rows: int, counters: Counters | None = None) -> EpsilonGreedy:
    return instance(selector(spec, rows, counters), EpsilonGreedy)


def episodes(*rows: int) -> Episodes:
    zeros = torch.zeros(len(rows))
    return Episodes(torch.tensor(rows), zeros.long() + 10, zeros, zeros, zeros, zeros.bool(), zeros)


def many(values: list[float], mask: list[bool], rows: int) -> tuple[Tensor, Tensor]:
    return torch.tensor(values).repeat(rows, 1), torch.tensor(mask).repeat(rows, 1)


@settings(deadline=None)
@given(data=st.data(), spec=st.sampled_from(SPECS), actions=st.integers(1, 7), seed=st.integers(0, 99))
def test_an_invalid_action_is_never_selected(data: st.DataObject, spec: Spec, actions: int, seed: int) -> None:
    number = st.floats(-1e6, 1e6, width=32)
    row = st.tuples(
        st.lists(number, min_size=actions, max_size=actions),
        st.lists(st.booleans(), min_size=actions, max_size=actions).filter(any),
    )
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    values, mask = torch.tensor([r[0] for r in rows]), torch.tensor([r[1] for r in rows])
    kept = values.clone()
    one = selector(spec, len(rows), seed=seed)
    chosen, probable = one.select(values, mask), one.probabilities(values, mask)
    assert chosen.shape == (len(rows),)
    assert chosen.dtype == torch.int64
    assert mask.gather(1, chosen.unsqueeze(1)).all()
    assert (probable[~mask] == 0).all()
    torch.testing.assert_close(probable.sum(1), torch.ones(len(rows)))
    assert torch.equal(values, kept)  # agents keep using these values


@pytest.mark.parametrize("spec", [EpsilonSpec(start=0.4), BoltzmannSpec(temperature=0.5)], ids=["epsilon", "boltzmann"])
def test_actions_are_as_frequent_as_they_are_probable(spec: Spec) -> None:
    rows = 40_000
    values, mask = many([0.1, 9.0, 0.6, 0.3, 0.2], [True, False, True, True, False], rows)
    one = selector(spec, rows)
    frequency = torch.bincount(one.select(values, mask), minlength=5) / rows
    torch.testing.assert_close(frequency, one.probabilities(values, mask)[0], atol=0.01, rtol=0)


def test_epsilon_probabilities_by_hand() -> None:
    values, mask = many([0.1, 9.0, 0.6, 0.3], [True, False, True, True], 1)
    probable = selector(EpsilonSpec(start=0.3), 1).probabilities(values, mask)
    torch.testing.assert_close(probable, torch.tensor([[0.1, 0.0, 0.8, 0.1]]))


def test_boltzmann_probabilities_by_hand() -> None:
    values, mask = many([math.log(1.0), 9.0, math.log(2.0)], [True, False, True], 1)
    clock = Counters(budget=100)
    one = selector(BoltzmannSpec(temperature=Schedule(start=1.0, end=0.5)), 1, clock)
    torch.testing.assert_close(one.probabilities(values, mask), torch.tensor([[1 / 3, 0.0, 2 / 3]]))
    clock.env_steps = 100  # half the temperature squares the odds
    torch.testing.assert_close(one.probabilities(values, mask), torch.tensor([[0.2, 0.0, 0.8]]))


def test_ties_go_to_the_first_action() -> None:
    values, mask = many([5.0, 1.0, 2.0, 2.0], [False, True, True, True], 50)
    assert selector(EpsilonSpec(start=0.0, end=0.0), 50).select(values, mask).tolist() == [2] * 50


def test_a_temperature_of_0_is_greedy() -> None:
    values, mask = many([5.0, 1.0, 2.0, 1.9], [False, True, True, True], 200)
    assert (
        selector(BoltzmannSpec.model_validate({"temperature": "lin_0"}), 200).select(values, mask).tolist() == [2] * 200
    )


def test_each_row_has_its_own_epsilon() -> None:
    rows = 10_000
    one = epsilon_greedy(EpsilonSpec(start=1.0, end=0.25, decay=0.5), rows)
    evens = episodes(*range(0, rows, 2))
    one.on_episodes_end(evens)
    assert one.epsilon[:4].tolist() == [0.5, 1.0, 0.5, 1.0]
    values, mask = many([1.0, 0.0], [True, True], rows)
    best = (one.select(values, mask) == 0).float()
    assert best[::2].mean().item() == pytest.approx(0.75, abs=0.03)
    assert best[1::2].mean().item() == pytest.approx(0.5, abs=0.03)
    for _ in range(5):
        one.on_episodes_end(evens)
    assert one.epsilon[:2].tolist() == [0.25, 1.0]


def test_epsilon_decays_by_a_factor_per_episode() -> None:
    one = epsilon_greedy(EpsilonSpec(), 2)
    assert one.epsilon.tolist() == [1.0, 1.0]
    for _ in range(100):
        one.on_episodes_end(episodes(1))
    assert one.epsilon[1].item() == pytest.approx(0.995**100, rel=1e-4)
    for _ in range(1000):
        one.on_episodes_end(episodes(1))
    assert one.epsilon.tolist() == pytest.approx([1.0, 0.01])


def test_a_schedule_in_steps_replaces_the_decay() -> None:
    clock = Counters(budget=1000)
    one = epsilon_greedy(EpsilonSpec(schedule=Schedule(start=0.8, end=0.2, to=0.5)), 3, clock)
    values, mask = many([1.0, 0.0], [True, True], 3)
    for steps, epsilon in ((0, 0.8), (250, 0.5), (700, 0.2)):
        clock.env_steps = steps
        one.select(values, mask)
        one.on_episodes_end(episodes(0, 2))
        assert one.epsilon.tolist() == pytest.approx([epsilon] * 3)


@pytest.mark.parametrize("spec", SPECS[1:], ids=repr)
def test_a_restored_selector_selects_the_same_actions(spec: Spec) -> None:
    values, mask = torch.rand(64, 6, generator=Streams(3).torch("values")), torch.ones(64, 6, dtype=torch.bool)
    one, two = selector(spec, 64), selector(spec, 64, seed=2)
    one.on_episodes_end(episodes(1, 5))
    one.select(values, mask)
    two.restore({name: tensor.clone() for name, tensor in one.state().items()})
    for _ in range(3):
        assert torch.equal(one.select(values, mask), two.select(values, mask))
        one.on_episodes_end(episodes(5))
        two.on_episodes_end(episodes(5))
        assert torch.equal(one.probabilities(values, mask), two.probabilities(values, mask))


def test_state_of_another_number_of_rows_is_rejected() -> None:
    with pytest.raises(TownletError, match=r"explore\.action_selection: epsilon.*\[3\].*\[4\]"):
        selector(EpsilonSpec(), 4).restore(selector(EpsilonSpec(), 3).state())


def test_normalized_entropy_by_hand() -> None:
    probabilities = torch.tensor([[0.5, 0.5, 0.0], [1 / 3] * 3, [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.75, 0.25, 0.0]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1], [0, 0, 1], [1, 1, 0]]).bool()
    skewed = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    torch.testing.assert_close(normalized_entropy(probabilities, mask), torch.tensor([1.0, 1.0, 0.0, 0.0, skewed]))


@settings(deadline=None)
@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=8).filter(lambda p: sum(p) > 0.01))
def test_normalized_entropy_is_in_the_unit_interval(weights: list[float]) -> None:
    probabilities = torch.tensor([weights]) / sum(weights)
    assert 0.0 <= normalized_entropy(probabilities, torch.ones(1, len(weights), dtype=torch.bool)).item() <= 1.0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: EpsilonSpec(start=0.1, end=0.2), "cannot be above 0.1"),
        (lambda: EpsilonSpec.model_validate({"schedule": "lin_2"}), "values from 0 to 1"),
        (lambda: BoltzmannSpec(temperature=-1.0), "must not be negative"),
        (lambda: ScheduledWeightSpec(value=-0.1), "would penalize novelty"),
        (lambda: ExploreSpec(bonus=RndSpec()), "a bonus without weight has no effect"),
    ],
)
def test_invalid_settings_are_rejected(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        wrong()


def test_recipe_selects_the_parts() -> None:
    parts = {"action_selection": {"name": "boltzmann", "temperature": "lin_2"}, "bonus": {"name": "counts"}}
    spec = ExploreSpec.model_validate(parts | {"weight": {"name": "adaptive"}})
    assert isinstance(spec.action_selection, BoltzmannSpec)
    assert ExploreSpec.model_validate(spec.model_dump(by_alias=True)) == spec
