# mypy: disable-error-code="no-untyped-def,no-untyped-call,attr-defined,misc"
"""A hint to the processor: fetch what the rows ahead will write, so that no row waits for memory.

In a town too large for the processor's cache this makes up to half of the speed.
"""

from __future__ import annotations

from typing import Final

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

AHEAD: Final = 6  # rows; by the time the loop is there, the memory has come
LINE: Final = 64  # bytes that come at once
LINES: Final = 6  # at most, from the start of a row: all of a standard observation
WRITE, KEEP, DATA = 1, 3, 1  # arguments of LLVM's prefetch


@intrinsic
def prefetch(typing, array, row):
    """Fetch the beginning of array[row + AHEAD], which may lie beyond the end."""

    def code(context, builder, signature, args):
        view = context.make_array(signature.args[0])(context, builder, args[0])
        word, number, pointer = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
        wanted = builder.add(context.cast(builder, args[1], signature.args[1], types.int64), ir.Constant(word, AHEAD))
        offset = builder.mul(wanted, builder.extract_value(view.strides, 0))
        start = builder.add(builder.ptrtoint(view.data, word), offset)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        for line in range(LINES):
            address = builder.inttoptr(builder.add(start, ir.Constant(word, LINE * line)), pointer)
            builder.call(hint, [address, *(ir.Constant(number, n) for n in (WRITE, KEEP, DATA))])
        return context.get_dummy_value()

    return types.none(array, row), code
