"""The few operations the rule book is written in, each with two meanings.

Called from Python they work on torch tensors [N] (all rows at once); called from a function that Numba
compiles they work on the numbers of one row (`scalar_ops`). `rule` marks a function of the rule book:
Python keeps it as it is, Numba compiles it into whatever kernel calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    from numba.extending import register_jitable
except ImportError:  # without Numba the tensor engine carries everything

    def rule(function: F) -> F:
        """Mark a function of the rule book."""
        return function
else:

    def rule(function: F) -> F:
        """Mark a function of the rule book."""
        marked: F = register_jitable(forceinline=True)(function)
        return marked


# Torch is imported inside: a town on Numba alone must not pay for it.


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` in rows where the condition holds, else `no`."""
    import torch

    return torch.where(condition, yes, no)


def unit(x: Any) -> Any:
    """x clamped to [0, 1], the range of every meter."""
    return x.clamp(0.0, 1.0)


def real(x: Any) -> Any:
    """A number or a truth value as float32."""
    import torch

    return x.to(torch.float32) if isinstance(x, torch.Tensor) else float(x)


def wide(x: Any) -> Any:
    """An integer with 64 bits, for hashing."""
    import torch

    return x.to(torch.int64)


def fill(like: Any, value: Any) -> Any:
    """The same value in every row, in the type of `like`."""
    import torch

    return torch.full_like(like, value)
