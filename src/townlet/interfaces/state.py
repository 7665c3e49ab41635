"""What a part must keep to go on exactly where it was: a tree of names."""

from __future__ import annotations

from typing import Any, Protocol

# Nested mappings by name. Leaves are tensors, NumPy arrays, or what JSON knows: bool, int, float, str, None, lists.
State = dict[str, Any]


class Stateful(Protocol):
    """A part of a run that survives: `restore(state())` in another process goes on with the same bits."""

    def state(self) -> State:
        """Everything that decides what happens next. Tensors may be live views: they are saved at once."""

    def restore(self, state: State) -> None:
        """Go on exactly where `state` was taken."""
