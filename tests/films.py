"""What is in a video, asked of ffmpeg itself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Facts(NamedTuple):
    """All that tests ask of a video."""

    frames: int
    size: tuple[int, int]  # width, height
    seconds: float
    brightness: list[float]  # of each picture, 0 … 255


def film_facts(path: Path) -> Facts:
    """Decode every picture of a video."""
    from imageio_ffmpeg import get_ffmpeg_exe

    command = [get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60)
    log = done.stderr.decode()
    width, height = map(int, re.search(r"Video: .*?, (\d+)x(\d+)", log).groups())  # type: ignore[union-attr]
    hours, minutes, seconds = re.search(r"Duration: (\d+):(\d+):([\d.]+)", log).groups()  # type: ignore[union-attr]
    pictures = np.frombuffer(done.stdout, np.uint8).reshape(-1, height * width)
    lasts = 3600 * int(hours) + 60 * int(minutes) + float(seconds)
    return Facts(len(pictures), (width, height), lasts, pictures.mean(1).tolist())
