"""Explanations of actions and deaths."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from townlet.live.explain import affordance_label, death_certificate, explain_action
from townlet.town.episode_recorder import FRAME_FIELDS, Recording
from townlet.town.world.load import load

WORLD = load("town")
METER = {name: m for m, name in enumerate(WORLD.meters)}


def life(**levels: float | NDArray[np.float64]) -> Recording:
    """A recording of 200 steps of an agent that only waits, with meters at these levels."""
    steps = 200
    meters = np.full((steps + 1, len(WORLD.meters)), 0.9, np.float32)
    for name, level in levels.items():
        meters[:, METER[name]] = level
    wait, k = int(WORLD.tables.wait), len(WORLD.actions)
    moments = {name: np.zeros(steps + 1, kind) for name, kind in FRAME_FIELDS.items()}
    return Recording(
        **moments | {"age": np.arange(steps + 1, dtype=np.uint32), "cell": np.full(steps + 1, 9, np.uint32)},
        meters=meters,
        actions=np.full(steps, wait, np.int16),
        outputs=np.tile(np.arange(k, dtype=np.float32), (steps, 1)),
        mask=np.ones((steps, k), np.bool_),
        reward=np.zeros(steps, np.float32),
        components=np.zeros((steps, len(WORLD.rewards)), np.float32),
        cell_of=np.asarray(WORLD.tables.cell_of)[0].astype(np.uint32),
    )


def test_death_is_attributed_to_the_largest_loss() -> None:
    starving = np.where(np.arange(201) < 100, 0.9, 0.0)  # half as long as low hygiene, with a larger loss
    sentences = death_certificate(WORLD, life(satiation=starving, hygiene=0.28), "health")
    assert sentences[0] == "Died at step 200: health was empty."
    assert sentences[1].startswith("Satiation below ")
    assert "below 30% for 100 steps" in sentences[1]
    assert not any("hygiene" in line and "of health" in line for line in sentences)


def test_two_similar_causes_are_both_listed() -> None:
    tables = WORLD.tables
    into = [k for k in range(len(tables.cascade_source)) if int(tables.cascade_target[k]) == METER["health"]]
    assert len(into) >= 2
    strong, other = sorted(into, key=lambda k: -float(tables.cascade_slope[k]))[:2]
    names = [WORLD.meters[int(tables.cascade_source[k])] for k in (strong, other)]
    ratio = float(tables.cascade_slope[other]) / float(tables.cascade_slope[strong])
    level = 0.3 - 0.3 * ratio  # a level with the same loss as the other meter at 0
    sentences = " ".join(death_certificate(WORLD, life(**{names[0]: level, names[1]: 0.0}), "health"))
    assert all(f"{name.capitalize()} below" in sentences for name in names)


def test_healthy_episode_has_no_cascade_losses() -> None:
    sentences = death_certificate(WORLD, life(), "energy")
    assert sentences[0] == "Died at step 200: energy was empty."
    assert sentences[1].startswith("It never used anything that restores energy: Bed, Luxury bed")
    assert len(sentences) == 2


def test_money_is_a_need_only_when_low() -> None:
    assert "money" not in explain_action(WORLD, life(money=0.5), 0, "values")
    assert "The lowest meter is money at 5%." in explain_action(WORLD, life(money=0.05), 0, "values")


@pytest.mark.parametrize(
    ("name", "said"),
    [("LuxuryBed", "Luxury bed"), ("Bed", "Bed"), ("TV", "TV"), ("coffee_shop", "coffee_shop"), ("", "")],
)
def test_affordance_labels(name: str, said: str) -> None:
    assert affordance_label(name) == said


@pytest.mark.parametrize(
    ("second", "text"),
    [(0.999, "its favorite, hardly ahead of “LEFT”."), (0.9, "its favorite, ahead of"), (0.1, "well ahead of “LEFT”.")],
)
def test_favorite_is_explained_without_raw_values(second: float, text: str) -> None:
    r = life()
    r.outputs[:] = 0
    r.outputs[:, int(r.actions[0])] = 1
    r.outputs[:, WORLD.actions.index("LEFT")] = second
    why = explain_action(WORLD, r, 0, "values")
    assert text in why
    assert not any(character.isdigit() for character in why.partition("No meter")[0])
    r.actions[0] = 0
    assert "trying something else; its favorite was “WAIT”." in explain_action(WORLD, r, 0, "values")
