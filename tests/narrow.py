"""Values whose class a test knows better than their annotation does."""

from __future__ import annotations

from typing import TypeVar

from townlet.runs import checkpoint
from townlet.runs.folder import Run

T = TypeVar("T")


def instance(value: object, kind: type[T]) -> T:
    """The value, which must be an instance of the class."""
    assert isinstance(value, kind), type(value)
    return value


def latest_checkpoint(run: Run) -> checkpoint.Checkpoint:
    """The latest checkpoint of a run, which must have one."""
    return instance(checkpoint.latest(run.checkpoints), checkpoint.Checkpoint)
