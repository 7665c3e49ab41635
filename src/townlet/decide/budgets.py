"""Budgets in bytes as numbers of entries: each entry counts with the most that it can take.

So a budget is kept whatever games send, and a log gives the same state again: which entries are let go of follows from
their number, and not from how a Python release lays them out.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from townlet.decide.domain import Domain
from townlet.decide.settings import MemorySettings

ARRAY: Final = 128  # bytes of an array beside its numbers
ENTRY: Final = 4096  # of names, keys and a decision without its message
ANSWER: Final = 640  # of an answer that is remembered, with its time
KEPT: Final = 66  # earlier answers of a territory: as many as a conversation lets wait, and those on their way


def pending_size(domain: Domain) -> int:
    """Bytes of a decision that waits for its outcome, at most."""
    rows = sum(int(np.prod(column.shape)) * np.dtype(column.dtype).itemsize for column in domain.columns.values())
    return rows + ARRAY * len(domain.columns) + ENTRY


def territory_size(domain: Domain) -> int:
    """Bytes of a territory, at most."""
    known = domain.fresh().values()
    return sum(column.nbytes + ARRAY for column in known) + ANSWER * (KEPT + 1) + ENTRY


def most_pending(domain: Domain, memory: MemorySettings) -> int:
    """Decisions that may wait for their outcomes."""
    return min(memory.pending, memory.pending_bytes // pending_size(domain))


def most_territories(domain: Domain, memory: MemorySettings) -> int:
    """Territories that are remembered."""
    return min(memory.territories, memory.territory_bytes // territory_size(domain))
