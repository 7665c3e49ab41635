"""WebSocket protocol: subscriptions, playback, world editing and errors."""

from __future__ import annotations

import shutil
from pathlib import Path

from live.conftest import LiveServer, Page
from townlet.live.protocol import CheckpointSaved, MetricsUpdate
from townlet.live.watched_run import open_watched_run
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.metrics_store import MetricsStore


def test_subscription_starts_with_the_history(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="none")
    status = page.receive("run_status")
    assert (status["run"], status["state"], status["budget"]) == (run.name, "finished", 1200)
    metrics = page.receive("metrics")
    assert metrics["series"]["episode_length"]
    assert {row["policy"] for row in metrics["evaluations"]} == {"random", "greedy"}
    assert page.receive("checkpoint")["run"] == run.name


def test_checkpoint_playback(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="checkpoint")
    begin = page.receive("episode_start")
    assert begin["source"] == "checkpoint"
    assert begin["length"] is None
    first = page.receive("frame")
    assert first["age"][0] == 0
    assert first["action"][0] is None
    page.send("set_speed", speed=200)
    ages = list(first["age"])
    while True:
        message = page.receive("frame", "episode_end")
        if message["type"] == "episode_end":
            break
        ages += message["age"]
        assert all(message["mask"][k][a] for k, a in enumerate(message["action"]) if a is not None)
    assert ages == list(range(len(ages)))
    assert message["length"] == ages[-1]
    assert message["certificate"]


def test_pause_step_and_seek(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="checkpoint")
    page.receive("frame")
    page.send("pause")
    page.send("seek", timestep=7)
    while page.receive("frame")["age"][-1] != 7:
        pass
    page.send("step")
    assert page.receive("frame")["age"] == [8]
    page.send("step", by=-2)
    assert page.receive("frame")["age"] == [6]


def test_lower_frame_rate_sends_more_timesteps_per_frame(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="checkpoint", rate=1.0)
    page.send("set_speed", speed=20)
    first, second = page.receive("frame"), page.receive("frame")
    assert first["age"] == [0]
    assert second["sent"] - first["sent"] > 0.5
    assert len(second["age"]) >= 10
    page.send("subscribe", run=run.name, source="checkpoint", rate=50)
    assert "rate" in page.receive("error")["what"]


def test_recording_is_complete(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="recording")
    begin = page.receive("episode_start")
    assert begin["length"] > 0
    page.send("seek", timestep=begin["length"])
    assert page.receive("episode_end")["length"] == begin["length"]
    page.send("seek", timestep=begin["length"] - 1)
    assert page.receive("episode_end")["episode"] == begin["episode"]  # it is played to its end again


def test_compared_checkpoints_share_the_town(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="checkpoint")
    page.receive("episode_start")
    page.send("watch", agents=[{"kind": "policy"}, {"kind": "policy", "checkpoint": "best"}])
    starts = {m["side"]: m for m in (page.receive("episode_start"), page.receive("episode_start"))}
    assert set(starts) == {0, 1}
    assert starts[0]["cell_of"] == starts[1]["cell_of"]


def test_invalid_messages_are_answered_with_errors(page: Page, run: Run) -> None:
    for wrong in ('{"type": "play"}', "{", "[]", '{"type": "dance"}', '{"type": "step", "by": "far"}', '"play"'):
        page.connection.send(wrong)
        assert page.receive("error")["what"]
    page.send("subscribe", run="no-such-run", source="none")
    assert "there is no run" in page.receive("error")["what"]
    page.send("subscribe", run="../../etc", source="none")
    assert "there is no run" in page.receive("error")["what"]
    page.connection.send(b"\x00\x01")
    assert "binary" in page.receive("error")["what"]
    page.send("subscribe", run=run.name, source="checkpoint")
    page.send("watch", agents=[{"kind": "policy", "checkpoint": "step-000000000009"}])
    assert "no checkpoint" in page.receive("error")["what"]
    assert page.receive("frame")


def test_edited_world_is_checked(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="checkpoint")
    page.send("edit_world", text="extends: town\nmax_step: 3\n", number=1)
    checked = page.receive("world_checked")
    assert checked["number"] == 1
    assert checked["errors"][0]["line"] == 2
    page.send("edit_world", text="extends: ../../../etc/passwd\n", number=2)
    assert "only shipped worlds" in page.receive("world_checked")["errors"][0]["what"]
    page.send("edit_world", text="extends: town\nmax_steps: 30\n", number=3, preview=True)
    assert page.receive("world_checked")["errors"] == []
    page.receive("episode_start")
    page.send("set_speed", speed=200)
    assert page.receive("episode_end")["length"] <= 30


def test_viewers_come_and_go(served: LiveServer, run: Run) -> None:
    for _ in range(20):
        with served.connect() as connection:
            one = Page(connection)
            one.send("subscribe", run=run.name, source="training", rows=4)
            one.receive("metrics")


def test_late_metrics_are_sent(run: Run, tmp_path: Path) -> None:
    copy = Run(Path(shutil.copytree(run.path, tmp_path / run.name)))
    watched = open_watched_run(copy)
    watched.news()
    with MetricsStore(copy.metrics_file) as store:
        store.add("updates", {"env_steps": 5000, "updates": 1, "name": "loss", "value": 0.5})
    assert [list(m.series) for m in watched.news() if isinstance(m, MetricsUpdate)] == [["loss"]]
    with MetricsStore(copy.metrics_file) as store:  # same env_steps, written later
        store.add("evaluations", {"env_steps": 5000, "policy": "greedy", "length": 7.0})
    (update,) = (m for m in watched.news() if isinstance(m, MetricsUpdate))
    assert [row["length"] for row in update.evaluations] == [7.0]
    assert watched.news() == []


def test_removed_checkpoint_is_reported_with_the_next_save(run: Run, tmp_path: Path) -> None:
    copy = Run(Path(shutil.copytree(run.path, tmp_path / run.name)))
    shutil.rmtree(copy.snapshots)  # that of the same step would stay in the list
    first, *_, last = checkpoint.scan(copy.checkpoints)[0]
    shutil.move(last.path, tmp_path / "last")
    watched = open_watched_run(copy)
    shutil.move(first.path, tmp_path / "first")
    assert not [m for m in watched.news() if isinstance(m, CheckpointSaved)]
    shutil.move(tmp_path / "last", last.path)
    (saved,) = (m for m in watched.news() if isinstance(m, CheckpointSaved))
    assert (saved.name, saved.removed) == (last.name, [first.name])


def test_snapshot_is_reported_and_remains_when_its_checkpoint_is_removed(run: Run, tmp_path: Path) -> None:
    copy = Run(Path(shutil.copytree(run.path, tmp_path / run.name)))
    beginner, *_, last = checkpoint.scan(copy.snapshots)[0]
    assert beginner.name not in [path.name for path in checkpoint.paths(copy.checkpoints)]
    shutil.move(beginner.path, tmp_path / "beginner")
    watched = open_watched_run(copy)
    shutil.rmtree(copy.checkpoints / last.name)
    shutil.move(tmp_path / "beginner", beginner.path)
    (saved,) = (m for m in watched.news() if isinstance(m, CheckpointSaved))
    assert (saved.name, saved.score, saved.removed) == (beginner.name, None, [])
