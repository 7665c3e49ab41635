"""The videos in a run's folder: named by the moment and by why it was filmed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal, NamedTuple, cast

Why = Literal["start", "best", "end"]
NAME: Final = re.compile(r"(\d+)-(start|best|end)\.mp4")
DIGITS: Final = 12  # so that names sort by the moment


class Film(NamedTuple):
    """One video."""

    path: Path
    env_steps: int
    why: Why


def name_at(env_steps: int, why: Why) -> str:
    """The name of the video of a moment."""
    return f"{env_steps:0{DIGITS}d}-{why}.mp4"


def listing(folder: Path) -> list[Film]:
    """All videos, from old to new."""
    if not folder.is_dir():
        return []
    found = [(path, NAME.fullmatch(path.name)) for path in sorted(folder.iterdir())]
    return [Film(path, int(name[1]), cast(Why, name[2])) for path, name in found if name]


def rewind(folder: Path, env_steps: int) -> None:
    """Remove what was filmed after this moment, and what a process that was killed left half done."""
    for film in listing(folder):
        if film.env_steps > env_steps:
            film.path.unlink(missing_ok=True)
    for rest in folder.glob(".*.mp4") if folder.is_dir() else ():
        rest.unlink(missing_ok=True)
