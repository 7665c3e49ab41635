"""Which runs can go, and letting them go. A run that is being written is never touched."""

from __future__ import annotations

import secrets
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from townlet.errors import TownletError
from townlet.runs import disk
from townlet.runs.checkpoint import GONE
from townlet.runs.folder import LATEST
from townlet.runs.lock import Lock, holder
from townlet.runs.overview import Overview, by_score

YOUNG: Final = 60  # seconds: between the making of a folder and its first checkpoint a training is being built


@dataclass(frozen=True)
class Leaving:
    """A run that can go, and why."""

    one: Overview
    why: str


def candidates(runs: Sequence[Overview], keep: int | None = None) -> list[Leaving]:
    """Runs without a checkpoint, with `keep` also all but the best few of each recipe.

    None that runs, that has just been begun, that was published, that is damaged or that is only a link to a folder
    elsewhere.
    """
    found, seen, now = [], Counter[str](), datetime.now(UTC)
    for one in by_score(runs):
        young = one.created is not None and (now - one.created).total_seconds() < YOUNG
        if (
            one.state in ("running", "published", "damaged")
            or one.run.path.is_symlink()
            or (young and not one.checkpoints)
        ):
            continue
        if not one.checkpoints:
            found.append(Leaving(one, "it has no checkpoint"))
            continue
        seen[one.recipe] += 1
        if keep is not None and seen[one.recipe] > keep:
            found.append(Leaving(one, f"not among the best {keep} of {one.recipe}"))
    return found


def remove(leaving: Leaving, root: Path) -> bool:
    """Remove a run's folder; False when somebody began to write in it meanwhile."""
    path = leaving.one.run.path
    try:
        with Lock(path):
            aside = path.with_name(f"{GONE}{secrets.token_hex(6)}")  # out of sight in one instant
            path.rename(aside)
            shutil.rmtree(aside)
    except TownletError:
        if holder(path) is None:  # it cannot be written at all
            raise
        return False
    except OSError as error:
        raise disk.explained(error, f"cannot remove {path}") from error
    link = root / LATEST
    if link.is_symlink() and not link.exists():
        link.unlink()
    return True


def tidy(root: Path) -> None:
    """Remove what is left of runs whose removal was cut short."""
    for left in root.glob(f"{GONE}*"):
        if not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)


def size_of(path: Path) -> int:
    """Bytes in a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink())
