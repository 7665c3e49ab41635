"""Videos of a run: recorded at the right steps, complete, and without an effect on training."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared_runs import train_once
from small import REPORT, SMALL, train_gym
from townlet.errors import TownletError
from townlet.runs import checkpoint, videos
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader
from townlet.tasks.experiment import load_experiment
from townlet.train.session import resume, start
from video_info import read_video

SHORT = ("budget.env_steps=320", "evaluation.every=320")
VIDEO = ("video.episodes=1", "video.steps=20")


def recorded(run: Run) -> list[tuple[int, str]]:
    return [(video.env_steps, video.reason) for video in videos.list_videos(run.videos)]


def expected(run: Run) -> list[tuple[int, str]]:
    """The start, every evaluation that was better than all before it, and the end."""
    with MetricsReader(run.metrics_file) as store:
        found = store.read("evaluations", ("env_steps", "score"), where={"policy": "greedy"})
    best, reported = float("-inf"), [(0, "start")]
    for at, score in zip(found["env_steps"], found["score"], strict=True):
        if score > best or at == found["env_steps"][-1]:
            reported.append((at, "end" if at == found["env_steps"][-1] else "best"))
        best = max(best, score)
    return reported


def weights(run: Run) -> bytes:
    last = checkpoint.latest(run.checkpoints)
    assert last is not None
    return b"".join(file.read_bytes() for file in sorted(last.path.glob("*.safetensors")))


@pytest.fixture(scope="module")
def filmed_ppo(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run with videos and a report; read-only."""
    return train_once(tmp_path_factory, "filmed", lambda root: {"ppo": train_gym("ppo", root, *VIDEO, REPORT)})["ppo"]


@pytest.mark.parametrize("kind", ["ppo", pytest.param("numbers", marks=pytest.mark.long)])
def test_videos_are_recorded_at_start_bests_and_end_without_side_effects(
    kind: str, filmed_ppo: Run, tmp_path: Path
) -> None:
    filmed = filmed_ppo if kind == "ppo" else train_gym(kind, tmp_path / "a", *VIDEO, REPORT)
    plain = train_gym(kind, tmp_path / "b")
    assert recorded(filmed) == expected(filmed)
    assert recorded(plain) == []
    assert weights(filmed) == weights(plain) != b""
    for video in videos.list_videos(filmed.videos):
        info = read_video(video.path)
        assert info.size == ((600, 400) if kind == "ppo" else (500, 500))
        assert 1 < info.frames <= 21 + 50
    report = filmed.report_html.read_text()
    assert all(f'href="videos/{video.path.name}"' in report for video in videos.list_videos(filmed.videos))
    assert "](videos/" in filmed.report_md.read_text()


def test_town_is_recorded_by_the_same_key(tmp_path: Path) -> None:
    run = start(
        load_experiment("town-l0:dqn", [*SMALL["town-l0:dqn"], *SHORT, "video.episodes=1", "video.steps=5"]), tmp_path
    ).run
    assert recorded(run) == expected(run)
    info = read_video(videos.list_videos(run.videos)[0].path)
    assert (info.frames, info.size) == (1 + 5 + 10, (960, 640))


def test_resumed_run_records_the_same_videos_and_removes_partial_ones(filmed_ppo: Run, tmp_path: Path) -> None:
    whole = filmed_ppo
    loaded = load_experiment("CartPole-v1:ppo", [*whole.meta()["overrides"], "metrics.report=false"])
    part = start(loaded, tmp_path / "part", pause_at=256).run
    (part.videos / videos.video_name(999, "best")).write_bytes(b"of a moment that never happened")
    (part.videos / ".000000000999-best.ab12.mp4").write_bytes(b"half")
    resume(part)
    assert recorded(part) == recorded(whole)
    assert [path.name for path in sorted(part.videos.iterdir())] == [
        path.name for path in sorted(whole.videos.iterdir())
    ]
    assert weights(part) == weights(whole)


def test_video_of_an_environment_without_rendering_is_refused_before_writing(tmp_path: Path) -> None:
    with pytest.raises(TownletError, match="Bandit-v0 cannot render images"):
        start(load_experiment("Bandit-v0:ppo", ["video.episodes=1"]), tmp_path)
    assert Run.list(tmp_path) == []
