"""Intrinsic reward: declines for visited states, stays high for unvisited ones, and is restored exactly."""

from __future__ import annotations

from copy import deepcopy
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import townlet
from townlet.errors import TownletError
from townlet.explore.intrinsic_reward import CountBonus, IntrinsicReward, make_intrinsic_reward, novelty_map
from townlet.explore.rnd import RandomNetworkDistillation, RunningMoments
from townlet.explore.spec import CountsSpec, RndSpec
from townlet.interfaces.layout import ObservationLayout
from townlet.rng import Streams

Spec = RndSpec | CountsSpec
CELLS = ObservationLayout.of(("position_onehot", (16,), 0.0, 1.0), ("meters", (4,), 0.0, 1.0))
SMALL = RndSpec(hidden=(32,), embedding_size=16, lr=1e-3)
BOTH = pytest.mark.parametrize("spec", [SMALL, CountsSpec()], ids=["rnd", "counts"])


def bonus(spec: Spec, layout: ObservationLayout = CELLS, seed: int = 1) -> IntrinsicReward:
    made = make_intrinsic_reward(spec, layout, Streams(seed))
    assert made is not None
    return made


def rnd(spec: RndSpec = SMALL, seed: int = 1) -> RandomNetworkDistillation:
    return cast(RandomNetworkDistillation, bonus(spec, seed=seed))


def at(*cells: int) -> Tensor:
    """Observations at these cells, all meters full."""
    return torch.cat([torch.eye(16)[list(cells)], torch.ones(len(cells), 4)], 1)


def walks(steps: int, rows: int = 8) -> list[Tensor]:
    chance = Streams(7).torch("walks")
    return [torch.rand(rows, CELLS.size, generator=chance) for _ in range(steps)]


def test_no_spec_means_no_bonus() -> None:
    assert make_intrinsic_reward(None, CELLS, Streams(1)) is None


def test_rnd_novelty_falls_for_visited_and_stays_high_for_unvisited() -> None:
    one = rnd()
    visited, unvisited = at(*range(8)), at(*range(8, 16))
    one.reward(visited)
    before = one.novelty(visited).mean()
    for _ in range(300):
        one.reward(visited)
        one.learn(visited)
    assert one.novelty(visited).max() < 0.1 * before
    assert one.novelty(unvisited).min() > 0.5 * before


def test_count_novelty_falls_for_visited_and_stays_for_unvisited() -> None:
    one = bonus(CountsSpec(blocks=("position_onehot",), bits=24))
    assert one.reward(at(3)).tolist() == [1.0]
    assert one.reward(at(3, 3, 3, 5)).tolist() == pytest.approx([0.5, 0.5, 0.5, 1.0])
    assert one.novelty(at(3, 5, 6)).tolist() == pytest.approx([5**-0.5, 2**-0.5, 1.0])
    assert one.learn(at(3)) == {}


@BOTH
def test_novelty_has_no_side_effects(spec: Spec) -> None:
    one, two = bonus(spec), bonus(spec)
    for obs in walks(5):
        one.novelty(obs * 0.5)
        assert torch.equal(one.reward(obs), two.reward(obs))
        one.novelty(at(1, 2))
        one.learn(obs)
        two.learn(obs)


@pytest.mark.parametrize(
    "spec", [SMALL, SMALL.model_copy(update={"update_every": 3}), CountsSpec()], ids=["rnd", "seldom", "counts"]
)
def test_a_restored_bonus_gives_the_same_rewards(spec: Spec) -> None:
    one, two = bonus(spec), bonus(spec, seed=2)
    fresh = deepcopy(one.state())
    first = [bits(one, obs) for obs in walks(4)]
    kept = deepcopy(one.state())
    ahead = [bits(one, obs) for obs in walks(8)[4:]]
    two.restore(kept)
    assert [bits(two, obs) for obs in walks(8)[4:]] == ahead
    two.restore(fresh)  # also from before the first step
    assert [bits(two, obs) for obs in walks(4)] == first


def bits(one: IntrinsicReward, obs: Tensor) -> tuple[list[float], dict[str, float]]:
    return one.reward(obs).tolist(), one.learn(obs)


@BOTH
def test_the_seed_determines_the_bonus(spec: Spec) -> None:
    before = torch.random.get_rng_state()
    one, same, other = (bonus(spec, seed=seed).state() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)  # nothing is drawn from global random state
    name = "target" if "target" in one else "projections"
    flat = [state[name]["0.weight"] if name == "target" else state[name] for state in (one, same, other)]
    assert torch.equal(flat[0], flat[1])
    assert not torch.equal(flat[0], flat[2])


def test_state_of_another_bonus_is_rejected() -> None:
    with pytest.raises(TownletError, match=r"explore\.bonus\.target: 0\.weight.*\[64, 20\].*\[32, 20\]"):
        rnd().restore(rnd(RndSpec(hidden=(64,), embedding_size=16)).state())
    with pytest.raises(TownletError, match=r"explore\.bonus\.target lacks '2\.bias'"):
        rnd().restore(rnd(RndSpec(hidden=(), embedding_size=32)).state())
    with pytest.raises(TownletError, match=r"explore\.bonus\.visits"):
        bonus(CountsSpec(bits=8)).restore(bonus(CountsSpec(bits=9)).state())


def test_networks_have_the_widths_of_the_paper() -> None:
    shapes = [tuple(w.shape) for w in rnd(RndSpec()).predictor.parameters() if w.ndim == 2]
    assert shapes == [(256, 20), (128, 256), (128, 128)]


def test_only_the_predictor_learns() -> None:
    one = rnd()
    target, predictor = deepcopy(one.target.state_dict()), deepcopy(one.predictor.state_dict())
    assert one.learn(at(1, 2))["rnd_loss"] > 0
    assert all(torch.equal(w, target[name]) for name, w in one.target.state_dict().items())
    assert not torch.equal(one.predictor.state_dict()["0.weight"], predictor["0.weight"])


def test_novelty_by_hand() -> None:
    one = rnd(SMALL.model_copy(update={"normalize_obs": False, "normalize_reward": False}))
    obs = at(1, 2, 3)
    with torch.no_grad():
        wrong = one.predictor(obs) - one.target(obs)
    torch.testing.assert_close(one.reward(obs), wrong.square().sum(1) / 16)
    assert one.learn(obs)["rnd_loss"] == pytest.approx(wrong.square().mean().item())


def test_reward_is_scaled_by_the_root_mean_square_of_all_novelty_so_far() -> None:
    plain = rnd(SMALL.model_copy(update={"normalize_reward": False}))
    scaled = rnd()
    past = torch.zeros(0)
    for obs in walks(5):
        raw = plain.reward(obs)
        past = torch.cat([past, raw])
        torch.testing.assert_close(scaled.reward(obs), raw / past.square().mean().sqrt())


def test_a_single_row_is_rewarded_within_bounds_from_the_first_step() -> None:
    one = rnd()
    rewards = [one.reward(at(cell)).item() for cell in range(16)]
    assert all(0 <= reward <= count**0.5 for count, reward in enumerate(rewards, 1))
    assert rewards[-1] > 0.1


def test_observations_are_normalized_by_running_moments() -> None:
    one = rnd()
    scaled = torch.ones(CELLS.size)
    scaled[:4] = 1e4  # novelty does not depend on units
    two = rnd()
    for obs in walks(6):
        torch.testing.assert_close(one.reward(obs), two.reward(obs * scaled), rtol=1e-3, atol=1e-4)


def test_learning_only_at_every_nth_call_and_in_steps_of_a_batch() -> None:
    seldom = rnd(SMALL.model_copy(update={"update_every": 3}))
    obs = torch.cat(walks(4))
    assert [bool(seldom.learn(obs)) for _ in range(6)] == [False, False, True] * 2
    at_once, parts = rnd(), rnd(SMALL.model_copy(update={"batch_size": 8}))
    at_once.learn(obs)
    parts.learn(obs)
    assert [s.state()["optimizer"]["0.weight"]["step"].item() for s in (seldom, at_once, parts)] == [2, 1, 4]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.floats(-100, 100, width=32), max_size=5), min_size=1, max_size=5).filter(any))
def test_moments_of_batches_are_those_of_the_whole(batches: list[list[float]]) -> None:
    moments = RunningMoments(1)
    for batch in batches:
        moments.update(torch.tensor(batch).unsqueeze(1))
    whole = torch.tensor([value for batch in batches for value in batch]).double()
    assert moments.mean.item() == pytest.approx(whole.mean().item(), abs=1e-3)
    assert moments.variance.item() == pytest.approx(whole.var(correction=0).item(), rel=1e-3, abs=1e-2)


def test_normalized_values_are_clipped() -> None:
    moments = RunningMoments(2)
    moments.update(torch.tensor([[0.0, 7.0], [2.0, 7.0]]))
    values = torch.tensor([[2.0, 7.0], [0.0, 7.5], [-99.0, 6.0]])
    torch.testing.assert_close(moments.normalize(values, 5.0), torch.tensor([[1.0, 0.0], [-1.0, 5.0], [-5.0, -5.0]]))


def test_similar_states_share_a_counter() -> None:
    one = cast(CountBonus, bonus(CountsSpec(blocks=("meters",), bins=4)))
    chance = Streams(5).torch("states")
    states = torch.randint(5, (200, CELLS.size), generator=chance) / 4
    near = states + (torch.rand(states.shape, generator=chance) - 0.5) * 0.2
    near[:, :16] = 0.0  # a block that is not used
    assert torch.equal(one.codes(near), one.codes(states))
    assert len(set(one.codes(states).tolist())) > 50


def test_counts_do_not_depend_on_the_order_of_the_blocks() -> None:
    one, two = (cast(CountBonus, bonus(CountsSpec(blocks=names))) for names in ((), ("meters", "position_onehot")))
    obs = torch.cat(walks(10))
    assert torch.equal(one.codes(obs), two.codes(obs))


def test_counts_distinguish_the_values_of_an_index() -> None:
    layout = ObservationLayout.of(("state", (2,), 5.0, 44.0, "index"))
    one = bonus(CountsSpec(bits=24), layout)
    pairs = torch.cartesian_prod(torch.arange(5.0, 25.0), torch.arange(25.0, 45.0))
    assert (one.reward(pairs) == 1.0).float().mean() > 0.97
    assert (one.reward(pairs) < 1.0).all()


def test_counts_work_where_a_range_is_unbounded() -> None:
    layout = ObservationLayout.of(("speed", (3,), -3.4e38, 3.4e38))
    one = bonus(CountsSpec(), layout)
    one.reward(torch.tensor([[0.51, 1.0, -1.0]] * 3))
    near, far = one.novelty(torch.tensor([[0.52, 1.0, -1.0], [-2.0, -1.0, 4.0]])).tolist()
    assert near == 0.5
    assert far == 1.0


def test_counts_of_an_unknown_block_are_rejected() -> None:
    with pytest.raises(TownletError, match="did you mean 'meters'"):
        bonus(CountsSpec(blocks=("meter",)))


def town_map() -> tuple[ObservationLayout, Tensor]:
    """The standard town seen from each of its 64 cells."""
    town = townlet.make("town", rows=64)
    town.reset(0)
    obs = town.restore({**town.state(), "cell": np.arange(64)}).obs.clone()
    town.close()
    return town.layout, obs


@pytest.mark.parametrize(
    "spec",
    [RndSpec(hidden=(64,), embedding_size=32, lr=2e-3), CountsSpec(blocks=("position_onehot",), bits=20)],
    ids=["rnd", "counts"],
)
def test_novelty_map_of_a_town_shows_unvisited_cells(spec: Spec) -> None:
    layout, everywhere = town_map()
    one = bonus(spec, layout)
    for _ in range(100):
        one.reward(everywhere[:32])
        one.learn(everywhere[:32])
    novelty = novelty_map(one, layout, everywhere)
    assert novelty.shape == (64,)
    assert novelty[:32].mean() < 0.25 * novelty[32:].mean()


def test_map_of_other_observations_is_rejected() -> None:
    with pytest.raises(TownletError, match=r"\(3, 7\) do not fit a layout of 20 values"):
        novelty_map(bonus(SMALL), CELLS, torch.zeros(3, 7))


def test_a_bonus_works_inside_inference_mode() -> None:
    for spec in (SMALL, CountsSpec()):
        one, two = bonus(spec), bonus(spec)
        for obs in walks(3):
            with torch.inference_mode():
                inside = one.reward(obs)
            assert torch.equal(inside, two.reward(obs))
            assert one.learn(obs) == two.learn(obs)
