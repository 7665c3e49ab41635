"""What a page says and hears, over a real socket."""

from __future__ import annotations

import shutil
from pathlib import Path

from live.conftest import Page, Served
from townlet.live.protocol import MetricsUpdate
from townlet.live.watched_run import MetricsStream
from townlet.runs.folder import Run
from townlet.runs.metrics_store import MetricsStore


def test_a_subscriber_first_hears_what_is_known(page: Page, run: Run) -> None:
    page.say("subscribe", run=run.name, source="none")
    status = page.hear("run_status")
    assert (status["run"], status["state"], status["budget"]) == (run.name, "finished", 1200)
    metrics = page.hear("metrics")
    assert metrics["series"]["episode_length"]
    assert {row["policy"] for row in metrics["evaluations"]} == {"random", "greedy"}
    assert page.hear("checkpoint")["run"] == run.name


def test_a_checkpoint_plays_for_one_viewer(page: Page, run: Run) -> None:
    page.say("subscribe", run=run.name, source="checkpoint")
    begin = page.hear("episode_start")
    assert begin["source"] == "checkpoint"
    assert begin["length"] is None
    first = page.hear("frame")
    assert first["age"][0] == 0
    assert first["action"][0] is None
    page.say("set_speed", speed=200)
    ages = list(first["age"])
    while True:
        message = page.hear("frame", "episode_end")
        if message["type"] == "episode_end":
            break
        ages += message["age"]
        assert all(message["mask"][k][a] for k, a in enumerate(message["action"]) if a is not None)
    assert ages == list(range(len(ages)))
    assert message["length"] == ages[-1]
    assert message["certificate"]


def test_pause_step_and_seek(page: Page, run: Run) -> None:
    page.say("subscribe", run=run.name, source="checkpoint")
    page.hear("frame")
    page.say("pause")
    page.say("seek", timestep=7)
    while page.hear("frame")["age"][-1] != 7:
        pass
    page.say("step")
    assert page.hear("frame")["age"] == [8]
    page.say("step", by=-2)
    assert page.hear("frame")["age"] == [6]


def test_fewer_frames_hold_more_moments(page: Page, run: Run) -> None:
    page.say("subscribe", run=run.name, source="checkpoint", rate=1.0)
    page.say("set_speed", speed=20)
    first, second = page.hear("frame"), page.hear("frame")
    assert first["age"] == [0]
    assert second["sent"] - first["sent"] > 0.5
    assert len(second["age"]) >= 10
    page.say("subscribe", run=run.name, source="checkpoint", rate=50)
    assert "rate" in page.hear("error")["what"]


def test_a_kept_life_is_shown_whole(page: Page, run: Run) -> None:
    page.say("subscribe", run=run.name, source="recording")
    begin = page.hear("episode_start")
    assert begin["length"] > 0
    page.say("seek", timestep=begin["length"])
    assert page.hear("episode_end")["length"] == begin["length"]


def test_two_checkpoints_live_in_the_same_town(page: Page, run: Run) -> None:
    page.say("subscribe", run=run.name, source="checkpoint")
    page.hear("episode_start")
    page.say("compare", checkpoint="best")
    starts = {m["side"]: m for m in (page.hear("episode_start"), page.hear("episode_start"))}
    assert set(starts) == {0, 1}
    assert starts[0]["cell_of"] == starts[1]["cell_of"]


def test_what_cannot_be_is_answered_and_the_conversation_goes_on(page: Page, run: Run) -> None:
    for wrong in ('{"type": "play"}', "{", "[]", '{"type": "dance"}', '{"type": "step", "by": "far"}', '"play"'):
        page.connection.send(wrong)
        assert page.hear("error")["what"]
    page.say("subscribe", run="no-such-run", source="none")
    assert "there is no run" in page.hear("error")["what"]
    page.say("subscribe", run="../../etc", source="none")
    assert "there is no run" in page.hear("error")["what"]
    page.connection.send(b"\x00\x01")
    assert "binary" in page.hear("error")["what"]
    page.say("subscribe", run=run.name, source="checkpoint")
    page.say("load_checkpoint", checkpoint="step-000000000009")
    assert "no checkpoint" in page.hear("error")["what"]
    assert page.hear("frame")


def test_a_world_is_checked_as_one_types(page: Page, run: Run) -> None:
    page.say("subscribe", run=run.name, source="checkpoint")
    page.say("edit_world", text="extends: town\nmax_step: 3\n", number=1)
    checked = page.hear("world_checked")
    assert checked["number"] == 1
    assert checked["mistakes"][0]["line"] == 2
    page.say("edit_world", text="extends: ../../../etc/passwd\n", number=2)
    assert "only shipped worlds" in page.hear("world_checked")["mistakes"][0]["what"]
    page.say("edit_world", text="extends: town\nmax_steps: 30\n", number=3, preview=True)
    assert page.hear("world_checked")["mistakes"] == []
    page.hear("episode_start")
    page.say("set_speed", speed=200)
    assert page.hear("episode_end")["length"] <= 30


def test_a_viewer_who_leaves_leaves_nothing_behind(served: Served, run: Run) -> None:
    for _ in range(20):
        with served.talk() as connection:
            one = Page(connection)
            one.say("subscribe", run=run.name, source="training", rows=4)
            one.hear("metrics")


def test_figures_that_are_written_later_are_told(run: Run, tmp_path: Path) -> None:
    copy = Run(Path(shutil.copytree(run.path, tmp_path / run.name)))
    metrics = MetricsStream(copy, 1)
    metrics.news()
    with MetricsStore(copy.metrics_file) as store:
        store.add("updates", {"env_steps": 5000, "updates": 1, "name": "loss", "value": 0.5})
    assert [list(m.series) for m in metrics.news() if isinstance(m, MetricsUpdate)] == [["loss"]]
    with MetricsStore(copy.metrics_file) as store:  # of the same moment, but later: evaluations take a while
        store.add("evaluations", {"env_steps": 5000, "policy": "greedy", "length": 7.0})
    (told,) = (m for m in metrics.news() if isinstance(m, MetricsUpdate))
    assert [row["length"] for row in told.evaluations] == [7.0]
    assert metrics.news() == []
