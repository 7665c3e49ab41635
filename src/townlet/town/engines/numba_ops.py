# mypy: disable-error-code="no-untyped-def,no-untyped-call,attr-defined,misc"
"""What the operations of the rule book mean for the numbers of one row, in Numba.

Each is a few instructions put in place. As compiled functions of their own they would make up most of
the time that compiling a kernel takes. Importing this module teaches Numba the operations.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import lower_builtin, type_callable

from townlet.town import ops


@type_callable(ops.where)
def _(context):
    def where(condition, yes, no):
        return context.unify_types(types.unliteral(yes), types.unliteral(no))

    return where


@lower_builtin(ops.where, types.Any, types.Any, types.Any)
def _(context, builder, signature, args):
    wanted = types.boolean, signature.return_type, signature.return_type
    cast = [context.cast(builder, a, given, want) for a, given, want in zip(args, signature.args, wanted, strict=True)]
    return builder.select(*cast)


@type_callable(ops.unit)
def _(context):
    return lambda x: types.float32


@lower_builtin(ops.unit, types.Any)
def _(context, builder, signature, args):
    x = context.cast(builder, args[0], signature.args[0], types.float32)
    zero, one = (ir.Constant(ir.FloatType(), limit) for limit in (0.0, 1.0))
    x = builder.select(builder.fcmp_ordered(">", x, zero), x, zero)
    return builder.select(builder.fcmp_ordered("<", x, one), x, one)


@type_callable(ops.real)
def _(context):
    return lambda x: types.float32


@type_callable(ops.wide)
def _(context):
    return lambda x: types.int64


@lower_builtin(ops.real, types.Any)
@lower_builtin(ops.wide, types.Any)
def _(context, builder, signature, args):
    return context.cast(builder, args[0], signature.args[0], signature.return_type)


@type_callable(ops.fill)
def _(context):
    return lambda like, value: types.unliteral(value)


@lower_builtin(ops.fill, types.Any, types.Any)
def _(context, builder, signature, args):
    return context.cast(builder, args[1], signature.args[1], signature.return_type)
