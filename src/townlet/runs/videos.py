"""Videos of a run: files named by env_steps and reason, and an MP4 writer."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from townlet.errors import TownletError
from townlet.interfaces.task import RenderedEnv
from townlet.runs import disk

VideoReason = Literal["start", "best", "end"]
FILE_NAME: Final = re.compile(r"(\d+)-(start|best|end)\.mp4")
DIGITS: Final = 12  # so that names sort by env_steps
SUFFIX: Final = ".mp4"
END_PAUSE: Final = 1.0  # seconds for which the last frame stays visible
# Small and playable everywhere; faststart puts the index first, so that players need not read the whole file.
FFMPEG_OPTIONS: Final = ("-preset", "veryfast", "-movflags", "+faststart", "-threads", "1")


class VideoFile(NamedTuple):
    """A video file of a run."""

    path: Path
    env_steps: int
    reason: VideoReason


def video_name(env_steps: int, reason: VideoReason) -> str:
    return f"{env_steps:0{DIGITS}d}-{reason}.mp4"


def list_videos(folder: Path) -> list[VideoFile]:
    if not folder.is_dir():
        return []
    found = [(path, FILE_NAME.fullmatch(path.name)) for path in sorted(folder.iterdir())]
    return [VideoFile(path, int(name[1]), cast(VideoReason, name[2])) for path, name in found if name]


def rewind(folder: Path, env_steps: int) -> None:
    """Remove videos after `env_steps`, and partial files of a killed process."""
    for video in list_videos(folder):
        if video.env_steps > env_steps:
            video.path.unlink(missing_ok=True)
    for rest in folder.glob(".*.mp4") if folder.is_dir() else ():
        rest.unlink(missing_ok=True)


def require_encoder() -> None:
    """Raise TownletError if imageio-ffmpeg or its FFmpeg program is missing."""
    try:
        from imageio_ffmpeg import get_ffmpeg_exe
    except ImportError as missing:
        what = "a video needs imageio-ffmpeg, which is not installed"
        raise TownletError(what, "install it: pip install imageio-ffmpeg") from missing
    try:
        get_ffmpeg_exe()
    except RuntimeError as missing:  # the wheel for this platform contains none
        raise TownletError("a video needs FFmpeg, which is not installed", "install ffmpeg on this system") from missing


class VideoWriter:
    """Writes an MP4 frame by frame, as a context manager; the file is renamed into place only on success."""

    def __init__(self, path: Path, fps: int) -> None:
        require_encoder()
        if path.suffix != SUFFIX:
            raise TownletError(f"a video is an {SUFFIX} file, but '{path.name}' is not", f"name it …{SUFFIX}")
        if not path.parent.is_dir():
            raise TownletError(f"there is no folder {path.parent}", "create it first, or write elsewhere")
        self.path, self.frames = path, 0
        self._fps = fps
        self._partial = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{SUFFIX}")
        self._size = (0, 0)
        self._writer: Generator[None, Any, None] | None = None

    def __enter__(self) -> VideoWriter:
        return self

    def add(self, image: NDArray[np.uint8]) -> None:
        """Add a frame [height, width, 3] of the size of the first."""
        height, width = image.shape[:2]
        # The encoder requires even sides: an edge is repeated.
        even = np.pad(image, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        size = even.shape[1], even.shape[0]
        if self._writer is None:
            self._size, self._writer = size, self._start_encoder(size)
        if size != self._size:
            raise TownletError(f"a frame of {size[0]}×{size[1]} pixels in a video of another size", "leave it out")
        with disk.os_errors(f"cannot write {self.path}"):
            self._writer.send(np.ascontiguousarray(even))
        self.frames += 1

    def _start_encoder(self, size: tuple[int, int]) -> Generator[None, Any, None]:
        from imageio_ffmpeg import write_frames

        writer: Generator[None, Any, None] = write_frames(
            str(self._partial), size, fps=self._fps, macro_block_size=1, quality=7,
            output_params=list(FFMPEG_OPTIONS), ffmpeg_log_level="error",
        )  # fmt: skip
        writer.send(None)
        return writer

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
            if kind is None and self.frames:
                disk.sync_file(self._partial)
                os.replace(self._partial, self.path)
        except OSError as failed:
            raise disk.describe_error(failed, f"cannot write {self.path}") from failed
        finally:
            self._partial.unlink(missing_ok=True)


def record_video(
    envs: Sequence[RenderedEnv], path: Path, *, episodes: int, steps: int, on_end: Callable[[], None] = lambda: None
) -> int:
    """Record episodes of all environments side by side, each of at most `steps` steps; returns the number of frames.

    `on_end` is called after each episode, before the next begins.
    """
    fps = envs[0].fps
    with VideoWriter(path, fps) as video:
        for episode in range(episodes):
            for env in envs if episode else ():
                env.next_episode()
            video.add(side_by_side(envs))
            while not all(env.over or env.age >= steps for env in envs):
                for env in envs:
                    if not env.over:
                        env.step()
                video.add(side_by_side(envs))
            for _ in range(round(END_PAUSE * fps)):
                video.add(side_by_side(envs))
            on_end()
    return video.frames


def side_by_side(envs: Sequence[RenderedEnv]) -> NDArray[np.uint8]:
    """The current images of all environments in one frame."""
    images = [image for env in envs if (image := env.render_rgb()) is not None]
    if len(images) < len(envs):
        raise TownletError("this environment cannot render images", "watch in a terminal")
    height = max(map(len, images))
    return np.concatenate([np.pad(image, ((0, height - len(image)), (0, 0), (0, 0))) for image in images], axis=1)
