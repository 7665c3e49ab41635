"""The operations that the rules use, each with two implementations.

Called from Python they operate on torch tensors [N], all rows at once; compiled by Numba they operate on the numbers of
one row (`engines.numba_lowering`). The decorator `rule` marks a function that both engines use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    from numba.extending import register_jitable
except ImportError:  # without Numba only the torch engine is available

    def rule(function: F) -> F:
        """Mark a function of the rule book."""
        return function
else:

    def rule(function: F) -> F:
        """Mark a function of the rule book: plain in Python, inlined into the kernels that Numba compiles."""
        marked: F = register_jitable(forceinline=True)(function)
        return marked


# Torch is imported inside the functions: a town on Numba does not need it.


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` in rows where the condition holds, else `no`."""
    import torch

    return torch.where(condition, yes, no)


def clamp01(x: Any) -> Any:
    """x clamped to [0, 1], the range of every meter."""
    return x.clamp(0.0, 1.0)


def to_float(x: Any) -> Any:
    """A number or a truth value as float32."""
    import torch

    return x.to(torch.float32) if isinstance(x, torch.Tensor) else float(x)


def to_int64(x: Any) -> Any:
    """An integer in 64 bits, for hashing."""
    import torch

    return x.to(torch.int64)


def fill(like: Any, value: Any) -> Any:
    """The same value in every row; a tensor has the dtype of `like`."""
    import torch

    return torch.full_like(like, value)


def take(values: Any, k: Any) -> Any:
    """Entry k of a list of values; on tensors all entries, as columns [N, K]."""
    import torch

    return torch.stack(values, 1)
