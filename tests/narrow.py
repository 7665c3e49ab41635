"""Values whose class a test knows better than their annotation does."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def instance(value: object, kind: type[T]) -> T:
    """The value, which must be an instance of the class."""
    assert isinstance(value, kind), type(value)
    return value
