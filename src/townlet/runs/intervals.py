"""Many episodes in one row: what `episode_intervals` keeps when they end faster than a disk should be written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def summarize(
    length: ArrayLike,
    returns: ArrayLike,
    *,
    extrinsic: ArrayLike = (),
    intrinsic: ArrayLike = (),
    causes: Sequence[str] = (),
    stages: ArrayLike = (),
    meters: Mapping[str, ArrayLike] | None = None,
) -> dict[str, Any]:
    """One row of `episode_intervals` from the columns [k] of the episodes in it; add env_steps and start yourself."""
    row: dict[str, Any] = {"count": len(np.asarray(length))}
    row |= _spread("length", length) | _spread("return", returns)
    row |= {name: _mean(values) for name, values in (("extrinsic", extrinsic), ("intrinsic", intrinsic))}
    row["causes"] = dict(sorted(Counter(causes).items()))
    row["stages"] = {str(stage): n for stage, n in sorted(Counter(np.asarray(stages, np.int64).tolist()).items())}
    row["meters"] = {name: mean for name, values in (meters or {}).items() if (mean := _mean(values)) is not None}
    return row


def _spread(name: str, values: ArrayLike) -> dict[str, float]:
    numbers = np.asarray(values, np.float64)
    if not numbers.size:
        return {}
    p10, p50, p90 = np.quantile(numbers, (0.1, 0.5, 0.9)).tolist()
    mean, low, high = float(numbers.mean()), float(numbers.min()), float(numbers.max())
    found = {"mean": mean, "min": low, "max": high, "p10": p10, "p50": p50, "p90": p90}
    return {f"{name}_{what}": value for what, value in found.items()}


def _mean(values: ArrayLike) -> float | None:
    numbers = np.asarray(values, np.float64)
    return float(numbers.mean()) if numbers.size else None
