"""Effects of stages in a town: decay, prices, inactive meters and rewards change."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import townlet
from townlet.curriculum.curriculum import AdaptiveCurriculum, make_curriculum
from townlet.curriculum.spec import STAGES, STAGES_SIX, AdaptiveSpec, FixedSpec, StageSpec
from townlet.errors import TownletError
from townlet.interfaces.vec_env import Episodes, Step
from townlet.town.env import Town

SHAPED = ["rewards=[milestone, potential]"]


def adaptive(town: Town, spec: AdaptiveSpec) -> AdaptiveCurriculum:
    world = town.world
    made = make_curriculum(spec, town.rows, world.spec.max_steps, world.meters, world.rewards)
    assert isinstance(made, AdaptiveCurriculum)
    return made


def put(town: Town, place: str) -> None:
    """Move every agent to an affordance."""
    cell = int(town.world.tables.cell_of[0][town.world.affordances.index(place)])
    town.restore({**town.state(), "cell": np.full(town.rows, cell)})


def act(town: Town, action: str) -> Step:
    step = town.step(torch.full((town.rows,), town.actions.names.index(action)))
    return Step(*(t.clone() for t in step if t is not None))


def meter(town: Town, step: Step, name: str) -> list[float]:
    return town.layout.view(step.obs, "meters")[:, town.world.meters.index(name)].tolist()


@pytest.fixture
def town() -> Iterator[Town]:
    """Five rows, row i at stage i + 1, on empty cells."""
    made = townlet.make(townlet.load_world("town", SHAPED), rows=5)
    made.reset(3)
    curriculum = adaptive(made, AdaptiveSpec())
    curriculum.stage[:] = torch.arange(1, 6)
    made.set(**curriculum.settings())
    yield made
    made.close()


def test_decay_grows_from_stage_to_stage(town: Town) -> None:
    step = act(town, "WAIT")  # costs .001 at every stage, decay is .005 and scaled
    assert meter(town, step, "energy") == pytest.approx([0.998, 0.9965, 0.995, 0.994, 0.994], abs=1e-6)
    assert meter(town, step, "health") == pytest.approx([1 - 0.0005 * m for m in (0.2, 0.5, 0.8, 1, 1)], abs=1e-5)


def test_only_active_meters_change(town: Town) -> None:
    for _ in range(30):
        step = act(town, "UP")
    moved = {name: [v < 0.999 for v in meter(town, step, name)] for name in town.world.meters if name != "money"}
    assert moved == {
        "energy": [True] * 5,
        "hygiene": [True] * 5,
        "satiation": [False, True, True, True, True],
        "mood": [False, False, False, True, True],
        "social": [False, False, False, True, True],
        "health": [True] * 5,
        "fitness": [True] * 5,
    }


def test_nothing_costs_or_pays_until_money_is_active(town: Town) -> None:
    put(town, "Bed")  # five ticks at .01
    assert meter(town, act(town, "INTERACT"), "money") == pytest.approx([0.5, 0.5, 0.45, 0.45, 0.45])
    put(town, "Job")  # 22.50 dollars
    assert meter(town, act(town, "INTERACT"), "money") == pytest.approx([0.5, 0.5, 0.675, 0.675, 0.675])


def test_shaping_reward_ends_with_last_stage(town: Town) -> None:
    step = act(town, "WAIT")
    guidance = step.components[:, town.components.index("potential")]
    assert (guidance[:4] < 0).all()
    assert guidance[4] == 0
    for _ in range(9):
        step = act(town, "WAIT")
    assert step.components[:, town.components.index("milestone")].tolist() == [0.5] * 5


def test_six_stages_halve_shaping_before_the_last() -> None:
    town = townlet.make(townlet.load_world("town", SHAPED), rows=3)
    town.reset(3)
    curriculum = adaptive(town, AdaptiveSpec(stages="six"))
    curriculum.stage[:] = torch.tensor([4, 5, 6])
    town.set(**curriculum.settings())
    whole, half, none = act(town, "WAIT").components[:, 1].tolist()
    assert whole < 0
    assert half == pytest.approx(whole / 2)
    assert none == 0
    town.close()


def test_advanced_row_uses_new_stage_in_next_episode() -> None:
    world = townlet.load_world("town", [*SHAPED, "max_steps=20"])
    town = townlet.make(world, rows=2)
    town.reset(1)
    curriculum = adaptive(town, AdaptiveSpec(episodes=2, steps=40))
    town.set(**curriculum.settings())
    stages, first_loss = [], []
    for step_number in range(200):
        step = act(town, "WAIT")
        if step_number % 20 == 0:
            first_loss.append(round(1 - meter(town, step, "energy")[0], 4))
            stages.append(int(curriculum.stage[0]))
        if len(rows := town.final_obs().rows):
            n = len(rows)
            zeros = torch.zeros(n)
            ended = Episodes(rows, torch.full((n,), 20), zeros, zeros, zeros, step.terminated[rows], zeros)
            if changes := curriculum.update(ended):
                moved = torch.tensor([change.row for change in changes])
                every, some = curriculum.settings(), curriculum.settings(moved)
                assert all(torch.equal(every[name][moved], some[name]) for name in every)
                town.set(**every)
    assert stages == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert first_loss == [0.002, 0.002, 0.0035, 0.0035, 0.005, 0.005, 0.006, 0.006, 0.006, 0.006]
    town.close()


def test_the_shipped_stages_are_those_of_the_table() -> None:
    rows = [(len(stage.active), stage.depletion, stage.reward) for stage in STAGES]
    assert rows == [(2, 0.2, "shaped"), (3, 0.5, "shaped"), (4, 0.8, "shaped"), (6, 1.0, "shaped"), (6, 1.0, "sparse")]
    assert [stage.reward for stage in STAGES_SIX] == ["shaped"] * 4 + ["half", "sparse"]


def settings_of(spec: FixedSpec, meters: tuple[str, ...], rewards: tuple[str, ...]) -> dict[str, list[object]]:
    return {name: t.tolist() for name, t in make_curriculum(spec, 2, 500, meters, rewards).settings().items()}


def test_user_defined_stages_name_meters_and_rewards_of_world() -> None:
    stage = StageSpec(active=("thirst",), depletion=0.5, reward={"vitality": 0.25})
    spec = FixedSpec(stages=(stage,), always=("warmth",))
    assert settings_of(spec, ("hunger", "thirst", "warmth"), ("milestone", "vitality")) == {
        "multiplier": [0.5, 0.5],
        "active": [0b110, 0b110],
        "reward_mix": [[0.0, 0.25], [0.0, 0.25]],
    }


def test_shipped_stages_ignore_missing_meters() -> None:
    assert settings_of(FixedSpec(stage=5), ("energy", "health"), ("milestone",))["active"] == [0b11, 0b11]
    assert settings_of(FixedSpec(stage=1, stages=STAGES_SIX), ("health", "mood"), ("potential", "milestone")) == {
        "multiplier": [pytest.approx(0.2)] * 2,
        "active": [0b01, 0b01],
        "reward_mix": [[1.0, 1.0]] * 2,
    }


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (
            FixedSpec(stages=(StageSpec(active=("enrgy",)),)),
            "'enrgy' in stage 1, which this world lacks; did you mean 'energy'",
        ),
        (FixedSpec(always=("helth",)), "a meter 'helth' in always, which this world lacks; did you mean 'health'"),
        (FixedSpec(stages=(StageSpec(active=("energy",), reward={"joy": 1.0}),)), "uses the reward 'joy'"),
    ],
)
def test_unknown_names_are_reported(spec: FixedSpec, says: str) -> None:
    with pytest.raises(TownletError, match=says):
        settings_of(spec, ("energy", "health"), ("milestone", "potential"))


def test_shaped_stage_requires_potential_reward() -> None:
    with pytest.raises(
        TownletError, match=r"stage 1 .* is shaped and uses the reward 'potential'.*rewards=\[milestone, potential\]"
    ):
        make_curriculum(AdaptiveSpec(), 2, 500, ("energy",), ("milestone",))
    assert settings_of(FixedSpec(stage=5), ("energy",), ("milestone",))["reward_mix"] == [[1.0], [1.0]]


@pytest.mark.parametrize(("stage", "mix"), [(1, [1.0, 1.0, 1.0]), (5, [1.0, 1.0, 0.5]), (6, [1.0, 1.0, 0.0])])
def test_shipped_stages_apply_to_every_reward_of_the_world(stage: int, mix: list[float]) -> None:
    rewards = ("vitality", "survival", "potential")
    spec = FixedSpec(stage=stage, stages="six")
    assert settings_of(spec, ("energy", "health"), rewards)["reward_mix"] == [mix, mix]


def test_a_world_without_any_of_the_meters_is_refused() -> None:
    with pytest.raises(TownletError, match="stage 1 activates no meter of this world; name some of warmth"):
        settings_of(FixedSpec(), ("warmth",), ("milestone", "potential"))
