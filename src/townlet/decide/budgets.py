"""Byte budgets as numbers of entries: each entry counts at its maximum size.

A budget then holds whatever games send, and replaying a log evicts the same entries: eviction depends on their number,
not on the memory layout of a Python release.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from townlet.decide.domain import Domain
from townlet.decide.settings import MemorySettings

ARRAY: Final = 128  # bytes of an array beside its numbers
ENTRY: Final = 4096  # of names, keys and a decision without its message
ANSWER: Final = 640  # of a stored answer, with its time
KEPT: Final = 66  # earlier answers of a territory: those that one connection may await, and those in transit


def pending_size(domain: Domain) -> int:
    """Largest size of a pending decision, in bytes."""
    rows = sum(int(np.prod(column.shape)) * np.dtype(column.dtype).itemsize for column in domain.columns.values())
    return rows + ARRAY * len(domain.columns) + ENTRY


def territory_size(domain: Domain) -> int:
    """Largest size of a territory, in bytes."""
    known = domain.initial_memory().values()
    return sum(column.nbytes + ARRAY for column in known) + ANSWER * (KEPT + 1) + ENTRY


def most_pending(domain: Domain, memory: MemorySettings) -> int:
    """Number of decisions that may be pending."""
    return min(memory.pending, memory.pending_bytes // pending_size(domain))


def most_territories(domain: Domain, memory: MemorySettings) -> int:
    """Number of territories that are kept."""
    return min(memory.territories, memory.territory_bytes // territory_size(domain))
