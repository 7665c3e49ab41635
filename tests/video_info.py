"""Properties of a video file, read with ffmpeg."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np


class VideoInfo(NamedTuple):
    """The properties of a video that tests check."""

    frames: int
    size: tuple[int, int]  # width, height
    seconds: float
    brightness: list[float]  # mean of each frame, 0 … 255


def read_video(path: Path) -> VideoInfo:
    """Decode every frame of a video."""
    from imageio_ffmpeg import get_ffmpeg_exe

    command = [get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    log = done.stderr.decode()
    size, length = re.search(r"Video: .*?, (\d+)x(\d+)", log), re.search(r"Duration: (\d+):(\d+):([\d.]+)", log)
    assert size is not None
    assert length is not None
    width, height = map(int, size.groups())
    hours, minutes, seconds = length.groups()
    frames = np.frombuffer(done.stdout, np.uint8).reshape(-1, height * width)
    duration = 3600 * int(hours) + 60 * int(minutes) + float(seconds)
    return VideoInfo(len(frames), (width, height), duration, frames.mean(1).tolist())
