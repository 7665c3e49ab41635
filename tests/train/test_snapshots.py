"""Policy snapshots and checkpoints at intervals: a run keeps its beginner beside its expert."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import townlet
from townlet.errors import TownletError
from townlet.runs import checkpoint, snapshots
from townlet.runs.folder import Run
from townlet.runs.overview import make_overview
from townlet.runs.verify import verify
from townlet.train.policies import TrainedPolicy, load_policy
from townlet.train.session import resume, start
from train.tiny import tiny

PAUSED = 500
WORDS = ("checkpoints={keep_every: 300, snapshots: 6}",)


def steps(folder: Path) -> list[int]:
    return [checkpoint.step_and_serial(path)[0] for path in checkpoint.paths(folder)]


def weights(policy: TrainedPolicy) -> torch.Tensor:
    return torch.cat([parameter.flatten() for parameter in policy.network.parameters()])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return start(tiny("town:dqn", *WORDS), tmp_path_factory.mktemp("trained")).run


def test_checkpoints_are_saved_and_kept_at_every_crossing(trained: Run) -> None:
    """The best one is kept as well, wherever it is."""
    assert {300, 600, 900, 1200} <= set(steps(trained.checkpoints)) <= {300, 400, 600, 800, 900, 1200}


def test_snapshots_are_at_halving_distances_from_the_start_to_the_end(trained: Run) -> None:
    """With 4 rows and an update every 5 steps a rollout has 20 env_steps; the budget is 1200."""
    assert steps(trained.snapshots) == [0, 80, 160, 300, 600, 1200]


@pytest.mark.parametrize(
    ("budget", "count", "due"),
    [
        (1000, 0, []),
        (1000, 1, []),  # only that of step 0, and that of the end
        (1000, 4, [250, 500, 1000]),
        (None, 10, [1000, 2000, 4000, 8000, 16000]),
        (10, 10, [1, 2, 3, 5, 10]),
    ],
)
def test_snapshots_are_due_at_steps_that_a_rollout_passes(budget: int | None, count: int, due: list[int]) -> None:
    assert [now for now in range(1, 20_000) if snapshots.snapshot_due(now - 1, now, budget, count)] == due


def test_policy_of_a_step_is_the_one_saved_nearest(trained: Run) -> None:
    beginner, later, last = (load_policy(trained, which) for which in (0, 170, 10**9))
    assert [policy.env_steps for policy in (beginner, later, last)] == [0, 160, 1200]
    assert townlet.load(trained, 170).env_steps == 160
    assert not torch.equal(weights(beginner), weights(last))
    assert torch.equal(weights(last), weights(load_policy(trained, "last")))
    with pytest.raises(TownletError, match="no checkpoint 'first'"):
        load_policy(trained, "first")  # type: ignore[arg-type]


def test_saved_policies_are_listed_with_their_scores(trained: Run) -> None:
    listed = {policy.env_steps: policy for policy in make_overview(trained).policies}
    assert set(listed) == {*steps(trained.checkpoints), *steps(trained.snapshots)}
    assert [listed[at].kind for at in (0, 600, 1200)] == ["snapshot", "checkpoint", "checkpoint"]
    assert listed[0].score is None
    assert listed[1200].score is not None
    assert [policy.env_steps for policy in listed.values() if policy.best] == [
        found.env_steps for found in [checkpoint.best(trained.checkpoints)] if found
    ]


def test_resumed_run_has_the_snapshots_of_an_uninterrupted_one(trained: Run, tmp_path: Path) -> None:
    """A snapshot that was written after the last checkpoint is written again."""
    run = start(tiny("town:dqn", *WORDS), tmp_path, pause_at=PAUSED).run
    newest = checkpoint.paths(run.snapshots)[-1]
    stale = run.snapshots / checkpoint.folder_name(PAUSED + 80)
    state, info = checkpoint.load(newest)
    checkpoint.save(run.snapshots, stale.name, state, info | {"env_steps": PAUSED + 80})
    resume(run)
    assert steps(run.snapshots) == steps(trained.snapshots)
    for path, other in zip(checkpoint.paths(run.snapshots), checkpoint.paths(trained.snapshots), strict=True):
        state, expected = checkpoint.load(path)[0], checkpoint.load(other)[0]
        found, wanted = (s["training"]["agent"]["network"] for s in (state, expected))
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_damaged_snapshot_is_found_and_does_not_prevent_a_resume(tmp_path: Path) -> None:
    run = start(tiny("town:dqn", *WORDS), tmp_path, pause_at=PAUSED).run
    file = checkpoint.paths(run.snapshots)[0] / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    damaged = {item.name for item in verify(run).items if item.state == "damaged"}
    assert damaged == {"snapshots/step-000000000000"}
    with pytest.raises(TownletError, match="damaged"):
        load_policy(run, 0)
    assert resume(run).ending.finished


def test_snapshots_can_be_switched_off(tmp_path: Path) -> None:
    run = start(tiny("town:dqn", "checkpoints.snapshots=0", "budget.env_steps=200"), tmp_path).run
    assert not run.snapshots.exists()
    assert load_policy(run, 0).env_steps > 0  # the nearest checkpoint
