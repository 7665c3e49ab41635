"""Sums over episodes in progress, compared with a recount of every step."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from townlet.interfaces.vec_env import FinalObs, Step
from townlet.train.episodes import EpisodeTracker

ROWS = 3
Steps = st.lists(
    st.lists(st.tuples(st.integers(-8, 8), st.integers(0, 8), st.sampled_from(("continues", "dies", "time"))),
             min_size=ROWS, max_size=ROWS),
    max_size=12,
)  # fmt: skip


def step_of(reported: list[tuple[int, int, str]]) -> tuple[Step, FinalObs, torch.Tensor]:
    reward = torch.tensor([float(pay) for pay, _, _ in reported])
    dies, time = (torch.tensor([how == word for _, _, how in reported]) for word in ("dies", "time"))
    rows = torch.nonzero(dies | time).squeeze(1)
    none = torch.zeros(ROWS, 1)
    ended = FinalObs(rows, none[rows], none[rows].bool())
    return (
        Step(none, none.bool(), reward, reward.unsqueeze(1), dies, time),
        ended,
        torch.tensor([n / 8 for _, n, _ in reported]),
    )


@given(Steps, st.integers(0, 12))
def test_every_episode_is_summed_once(steps: list[list[tuple[int, int, str]]], stop: int) -> None:
    tracker, running = EpisodeTracker(ROWS), [(0, 0.0, 0.0)] * ROWS
    for count, reported in enumerate(steps):
        if count == stop:  # continued by a restored tracker
            state, tracker = {k: v.clone() for k, v in tracker.state().items()}, EpisodeTracker(ROWS)
            tracker.restore(state)
        step, ended, new = step_of(reported)
        over = tracker.step(step, ended, new, new)
        running = [(n + 1, r + pay, i + nov / 8) for (n, r, i), (pay, nov, _) in zip(running, reported, strict=True)]
        expected = [
            (row, *running[row], reported[row][2] == "dies") for row in range(ROWS) if reported[row][2] != "continues"
        ]
        found = zip(
            *(c.tolist() for c in (over.rows, over.length, over.reward, over.intrinsic, over.terminated)), strict=True
        )
        assert list(found) == expected
        mean = [running[row][2] / running[row][0] for row in over.rows.tolist()]
        assert torch.allclose(over.entropy, torch.tensor(mean, dtype=torch.float32).reshape(-1))
        for row in over.rows.tolist():
            running[row] = (0, 0.0, 0.0)


def test_shaping_is_summed_separately_from_the_reward_of_the_world() -> None:
    tracker, none = EpisodeTracker(2, components=("milestone", "potential", "vitality")), torch.zeros(2, 1)
    for paid in torch.tensor([[[1, 10, 0.5], [2, 20, 0]], [[4, -30, 0], [8, 1, 0.25]]]):
        over = torch.tensor([bool(paid[0, 0] == 4)] * 2)
        step = Step(none, none.bool(), paid.sum(1), paid, over, ~over & False)
        rows = torch.nonzero(over).squeeze(1)
        ended = tracker.step(step, FinalObs(rows, none[rows], none[rows].bool()), torch.zeros(2), None)
    assert (ended.reward.tolist(), ended.guidance.tolist()) == ([5.5, 10.25], [-20.0, 21.0])
    assert not tracker.reward.any()
    assert not tracker.guidance.any()
