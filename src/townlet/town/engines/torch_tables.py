"""The world's tables for torch: what is looked up by a row's value is a tensor, the rest unrolls."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from townlet.town.world.tables import Tables

LOOKED_UP: Final = frozenset(
    {
        "next_cell", "passable", "action_cost", "start_cells", "kind_at", "cell_of", "window_cell",
        "position", "ticks", "tick_share", "price", "open_at", "effect", "clock", "steps_between",
    }
)  # fmt: skip


def unrolled(value: Any) -> Any:
    """Nested tuples of Python numbers, which become constants of the graph."""
    return tuple(unrolled(v) for v in value) if isinstance(value, list) else value


def tensor_tables(tables: Tables, device: str) -> Tables:
    """The same tables, ready for the rule book on this device."""
    out: dict[str, Any] = {}
    for name, value in tables._asdict().items():
        if name in LOOKED_UP:
            out[name] = torch.from_numpy(np.ascontiguousarray(value)).to(device)
        else:
            out[name] = unrolled(np.asarray(value).tolist())
    return Tables(**out)
