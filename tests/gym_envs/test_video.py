"""Videos: files contain the recorded frames, and are written completely or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from townlet.errors import TownletError
from townlet.rng import Streams
from townlet.runs.videos import VideoWriter, record_video
from townlet.town.planner import make_player
from townlet.town.render.rendered_town import RenderedTown
from townlet.town.world.load import load
from video_info import read_video


def pictures(count: int, height: int = 40, width: int = 60) -> list[np.ndarray]:
    """Frames that become brighter."""
    return [np.full((height, width, 3), 255 * n // count, np.uint8) for n in range(count)]


def test_video_contains_every_frame(tmp_path: Path) -> None:
    path = tmp_path / "x.mp4"
    with VideoWriter(path, 20) as video:
        for picture in pictures(30):
            video.add(picture)
    facts = read_video(path)
    assert (facts.frames, facts.size) == (30, (60, 40))
    assert facts.seconds == pytest.approx(1.5, abs=0.06)
    assert facts.brightness[0] < 20 < 200 < facts.brightness[-1]
    assert [file.name for file in tmp_path.iterdir()] == ["x.mp4"]


def test_odd_sides_become_even(tmp_path: Path) -> None:
    with VideoWriter(tmp_path / "x.mp4", 10) as video:
        for picture in pictures(5, 33, 47):
            video.add(picture)
    assert read_video(tmp_path / "x.mp4").size == (48, 34)


def test_failed_recording_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.mp4"
    path.write_bytes(b"old")
    with pytest.raises(TownletError, match="another size"), VideoWriter(path, 10) as video:
        list(map(video.add, (*pictures(1), *pictures(1, 20, 20))))
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["x.mp4"]


def test_town_is_recorded_over_several_episodes(tmp_path: Path) -> None:
    world = load("town-l0", ["max_steps=6"])
    players = [make_player(name, world, Streams(0).numpy(name)) for name in ("random", "passive")]
    shows = [RenderedTown(world, player, 1, fps=5) for player in players]
    path = tmp_path / "town.mp4"
    assert record_video(shows, path, episodes=2, steps=100) == 2 * (1 + 6 + 5)  # the last frame is shown for a second
    facts = read_video(path)
    assert (facts.frames, facts.size) == (24, (1920, 640))


@pytest.mark.parametrize(
    ("name", "message"), [("x.gif", "a video is an .mp4 file"), ("no/x.mp4", "there is no folder")]
)
def test_wrong_file_name_is_rejected(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(TownletError, match=message):
        VideoWriter(tmp_path / name, 10)


def test_missing_encoder_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)  # as if it were not installed
    with pytest.raises(TownletError, match="which is not installed; install it: pip install imageio-ffmpeg"):
        VideoWriter(tmp_path / "x.mp4", 10)


def test_missing_ffmpeg_program_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:  # as in imageio-ffmpeg on a platform whose wheel contains no program
        raise RuntimeError("No ffmpeg exe could be found.")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", missing)
    with pytest.raises(TownletError, match="a video needs FFmpeg, which is not installed"):
        VideoWriter(tmp_path / "x.mp4", 10)


def test_video_format_is_widely_supported(tmp_path: Path) -> None:
    """H.264 with 4:2:0 colors is what browsers and phones play."""
    with VideoWriter(tmp_path / "x.mp4", 10) as video:
        video.add(pictures(1)[0])
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(tmp_path / "x.mp4")]
    stderr = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stderr
    assert "h264" in stderr
    assert "yuv420p" in stderr
