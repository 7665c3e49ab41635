"""Choosing: only valid actions, at the probabilities that are said, with an ε that really falls."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from townlet.config.schedule import Schedule
from townlet.contract.counters import Counters
from townlet.contract.episodes import Episodes
from townlet.errors import TownletError
from townlet.explore.choose import Chooser, normalized_entropy
from townlet.explore.make import make_chooser
from townlet.explore.spec import BoltzmannSpec, EpsilonSpec, ExploreSpec, FixedWeight, RndSpec
from townlet.rng import Streams

torch.set_num_threads(1)

Spec = EpsilonSpec | BoltzmannSpec
SPECS: tuple[Spec, ...] = (
    EpsilonSpec(start=0.0, end=0.0),
    EpsilonSpec(start=0.3),
    EpsilonSpec(start=1.0),
    BoltzmannSpec(temperature=0.0),
    BoltzmannSpec(temperature=0.7),
)


def chooser(spec: Spec, rows: int, counters: Counters | None = None, seed: int = 1) -> Chooser:
    return make_chooser(spec, rows, counters or Counters(), Streams(seed).torch("choice"))


def episodes(*rows: int) -> Episodes:
    zeros = torch.zeros(len(rows))
    return Episodes(torch.tensor(rows), zeros.long() + 10, zeros, zeros, zeros, zeros.bool(), zeros)


def many(values: list[float], mask: list[bool], rows: int) -> tuple[Tensor, Tensor]:
    return torch.tensor(values).repeat(rows, 1), torch.tensor(mask).repeat(rows, 1)


@settings(deadline=None)
@given(data=st.data(), spec=st.sampled_from(SPECS), actions=st.integers(1, 7), seed=st.integers(0, 99))
def test_an_invalid_action_is_never_chosen(data: st.DataObject, spec: Spec, actions: int, seed: int) -> None:
    number = st.floats(-1e6, 1e6, width=32)
    row = st.tuples(
        st.lists(number, min_size=actions, max_size=actions),
        st.lists(st.booleans(), min_size=actions, max_size=actions).filter(any),
    )
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    values, mask = torch.tensor([r[0] for r in rows]), torch.tensor([r[1] for r in rows])
    kept = values.clone()
    one = chooser(spec, len(rows), seed=seed)
    chosen, probable = one.choose(values, mask), one.probabilities(values, mask)
    assert chosen.shape == (len(rows),)
    assert chosen.dtype == torch.int64
    assert mask.gather(1, chosen.unsqueeze(1)).all()
    assert (probable[~mask] == 0).all()
    torch.testing.assert_close(probable.sum(1), torch.ones(len(rows)))
    assert torch.equal(values, kept)  # an agent goes on using its values


@pytest.mark.parametrize("spec", [EpsilonSpec(start=0.4), BoltzmannSpec(temperature=0.5)], ids=["epsilon", "boltzmann"])
def test_actions_are_as_frequent_as_they_are_probable(spec: Spec) -> None:
    rows = 40_000
    values, mask = many([0.1, 9.0, 0.6, 0.3, 0.2], [True, False, True, True, False], rows)
    one = chooser(spec, rows)
    frequency = torch.bincount(one.choose(values, mask), minlength=5) / rows
    torch.testing.assert_close(frequency, one.probabilities(values, mask)[0], atol=0.01, rtol=0)


def test_epsilon_probabilities_by_hand() -> None:
    values, mask = many([0.1, 9.0, 0.6, 0.3], [True, False, True, True], 1)
    probable = chooser(EpsilonSpec(start=0.3), 1).probabilities(values, mask)
    torch.testing.assert_close(probable, torch.tensor([[0.1, 0.0, 0.8, 0.1]]))


def test_boltzmann_probabilities_by_hand() -> None:
    values, mask = many([math.log(1.0), 9.0, math.log(2.0)], [True, False, True], 1)
    clock = Counters(budget=100)
    one = chooser(BoltzmannSpec(temperature=Schedule(start=1.0, end=0.5)), 1, clock)
    torch.testing.assert_close(one.probabilities(values, mask), torch.tensor([[1 / 3, 0.0, 2 / 3]]))
    clock.env_steps = 100  # half the temperature squares the odds
    torch.testing.assert_close(one.probabilities(values, mask), torch.tensor([[0.2, 0.0, 0.8]]))
    assert one.epsilon.tolist() == [0.0]


def test_the_first_of_equal_values_is_the_best() -> None:
    values, mask = many([5.0, 1.0, 2.0, 2.0], [False, True, True, True], 50)
    assert chooser(EpsilonSpec(start=0.0, end=0.0), 50).choose(values, mask).tolist() == [2] * 50


def test_without_temperature_the_best_is_taken() -> None:
    values, mask = many([5.0, 1.0, 2.0, 1.9], [False, True, True, True], 200)
    assert chooser(BoltzmannSpec(temperature="lin_0"), 200).choose(values, mask).tolist() == [2] * 200


def test_each_row_has_its_own_epsilon() -> None:
    rows = 10_000
    one = chooser(EpsilonSpec(start=1.0, end=0.25, decay=0.5), rows)
    evens = episodes(*range(0, rows, 2))
    one.on_episodes_end(evens)
    assert one.epsilon[:4].tolist() == [0.5, 1.0, 0.5, 1.0]
    values, mask = many([1.0, 0.0], [True, True], rows)
    best = (one.choose(values, mask) == 0).float()
    assert best[::2].mean().item() == pytest.approx(0.75, abs=0.03)
    assert best[1::2].mean().item() == pytest.approx(0.5, abs=0.03)
    for _ in range(5):
        one.on_episodes_end(evens)
    assert one.epsilon[:2].tolist() == [0.25, 1.0]


def test_epsilon_falls_as_the_textbook_says() -> None:
    one = chooser(EpsilonSpec(), 2)
    assert one.epsilon.tolist() == [1.0, 1.0]
    for _ in range(100):
        one.on_episodes_end(episodes(1))
    assert one.epsilon[1].item() == pytest.approx(0.995**100, rel=1e-4)
    for _ in range(1000):
        one.on_episodes_end(episodes(1))
    assert one.epsilon.tolist() == pytest.approx([1.0, 0.01])


def test_a_schedule_in_steps_replaces_the_decay() -> None:
    clock = Counters(budget=1000)
    one = chooser(EpsilonSpec(schedule=Schedule(start=0.8, end=0.2, to=0.5)), 3, clock)
    values, mask = many([1.0, 0.0], [True, True], 3)
    for steps, epsilon in ((0, 0.8), (250, 0.5), (700, 0.2)):
        clock.env_steps = steps
        one.choose(values, mask)
        one.on_episodes_end(episodes(0, 2))
        assert one.epsilon.tolist() == pytest.approx([epsilon] * 3)


@pytest.mark.parametrize("spec", SPECS[1:], ids=repr)
def test_a_restored_chooser_goes_on_with_the_same_draws(spec: Spec) -> None:
    values, mask = torch.rand(64, 6, generator=Streams(3).torch("values")), torch.ones(64, 6, dtype=torch.bool)
    one, two = chooser(spec, 64), chooser(spec, 64, seed=2)
    one.on_episodes_end(episodes(1, 5))
    one.choose(values, mask)
    two.restore({name: tensor.clone() for name, tensor in one.state().items()})
    for _ in range(3):
        assert torch.equal(one.choose(values, mask), two.choose(values, mask))
        one.on_episodes_end(episodes(5))
        two.on_episodes_end(episodes(5))
        assert torch.equal(one.epsilon, two.epsilon)


def test_a_state_of_another_number_of_rows_is_refused() -> None:
    with pytest.raises(TownletError, match=r"explore\.epsilon.*\[3\].*\[4\]"):
        chooser(EpsilonSpec(), 4).restore(chooser(EpsilonSpec(), 3).state())


def test_normalized_entropy_by_hand() -> None:
    probabilities = torch.tensor([[0.5, 0.5, 0.0], [1 / 3] * 3, [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.75, 0.25, 0.0]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1], [0, 0, 1], [1, 1, 0]]).bool()
    skewed = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    torch.testing.assert_close(normalized_entropy(probabilities, mask), torch.tensor([1.0, 1.0, 0.0, 0.0, skewed]))


@settings(deadline=None)
@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=8).filter(lambda p: sum(p) > 0.01))
def test_normalized_entropy_is_a_share(weights: list[float]) -> None:
    probabilities = torch.tensor([weights]) / sum(weights)
    assert 0.0 <= normalized_entropy(probabilities, torch.ones(1, len(weights), dtype=torch.bool)).item() <= 1.0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: EpsilonSpec(start=0.1, end=0.2), "cannot be above 0.1"),
        (lambda: EpsilonSpec(schedule="lin_2"), "values from 0 to 1"),
        (lambda: BoltzmannSpec(temperature=-1.0), "cannot be below 0"),
        (lambda: FixedWeight(value=-0.1), "punish what is new"),
        (lambda: ExploreSpec(bonus=RndSpec()), "a bonus without weight changes nothing"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: Callable[[], object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        wrong()


def test_a_recipe_names_the_parts() -> None:
    parts = {"choose": {"name": "boltzmann", "temperature": "lin_2"}, "bonus": {"name": "counts"}}
    spec = ExploreSpec.model_validate(parts | {"weight": {"name": "adaptive"}})
    assert isinstance(spec.choose, BoltzmannSpec)
    assert ExploreSpec.model_validate(spec.model_dump(by_alias=True)) == spec
