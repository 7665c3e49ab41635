"""Observations as bytes: the arrays of all columns, one after the other; and the locks of territories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from math import prod

import numpy as np

from townlet.decide.domain import ColumnSpec, Domain, ObservationRow


class RowFormat:
    """The columns of a row, in a fixed order."""

    def __init__(self, columns: Mapping[str, ColumnSpec]) -> None:
        self._columns = {name: (spec.shape, np.dtype(spec.dtype)) for name, spec in sorted(columns.items())}

    def encode(self, row: ObservationRow) -> bytes:
        return b"".join(np.asarray(row[name], dtype).tobytes() for name, (_, dtype) in self._columns.items())

    def decode(self, data: bytes) -> ObservationRow:
        row: ObservationRow = {}
        offset = 0
        for name, (shape, dtype) in self._columns.items():
            count = prod(shape)
            row[name] = np.frombuffer(data, dtype, count, offset).reshape(shape)
            offset += count * dtype.itemsize
        return row


def observation_format(domain: Domain) -> RowFormat:
    """All columns of an observation."""
    return RowFormat(domain.columns)


def territory_format(domain: Domain) -> RowFormat:
    """The columns that a territory carries from one observation to the next."""
    return RowFormat({name: ColumnSpec(a.shape, str(a.dtype)) for name, a in domain.initial_territory_state().items()})


def join_lines(records: Iterable[bytes]) -> str:
    """Records as one value, which the server splits: an array would have every quotation mark escaped."""
    return b"\n".join(records).decode()


def lock_key(territory: str) -> int:
    """The advisory lock of a territory; territories that share one merely wait for each other."""
    return int.from_bytes(blake2b(territory.encode(), digest_size=8).digest(), "big", signed=True)
