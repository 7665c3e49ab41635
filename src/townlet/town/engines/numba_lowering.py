# mypy: disable-error-code="no-untyped-def,no-untyped-call,attr-defined,misc"
"""How Numba compiles the rules: their operations, the world's tables, and a prefetch.

Operations are emitted as a few instructions; as compiled functions they would dominate the compile time. Importing
this module registers them.
"""

from __future__ import annotations

import hashlib
import operator
from typing import Final

import numpy as np
from llvmlite import ir
from numba import extending
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.np.arrayobj import populate_array

from townlet.town import ops
from townlet.town.world.tables import Tables


@extending.type_callable(ops.where)
def _(context):
    def where(condition, yes, no):
        return context.unify_types(types.unliteral(yes), types.unliteral(no))

    return where


@extending.lower_builtin(ops.where, types.Any, types.Any, types.Any)
def _(context, builder, signature, args):
    wanted = types.boolean, signature.return_type, signature.return_type
    cast = [context.cast(builder, a, given, want) for a, given, want in zip(args, signature.args, wanted, strict=True)]
    return builder.select(*cast)


for operation, result in ((ops.clamp01, types.float32), (ops.to_float, types.float32), (ops.to_int64, types.int64)):
    extending.type_callable(operation)(lambda context, result=result: lambda x: result)


@extending.lower_builtin(ops.clamp01, types.Any)
def _(context, builder, signature, args):
    x = context.cast(builder, args[0], signature.args[0], types.float32)
    zero, one = (ir.Constant(ir.FloatType(), limit) for limit in (0.0, 1.0))
    x = builder.select(builder.fcmp_ordered(">", x, zero), x, zero)
    return builder.select(builder.fcmp_ordered("<", x, one), x, one)


@extending.lower_builtin(ops.to_float, types.Any)
@extending.lower_builtin(ops.to_int64, types.Any)
def _(context, builder, signature, args):
    return context.cast(builder, args[0], signature.args[0], signature.return_type)


@extending.type_callable(ops.take)
def _(context):
    return lambda values, k: values.dtype


@extending.lower_builtin(ops.take, types.Any, types.Any)
def _(context, builder, signature, args):
    return context.get_function(operator.getitem, signature)(builder, args)


@extending.type_callable(ops.fill)
def _(context):
    return lambda like, value: types.unliteral(value)


@extending.lower_builtin(ops.fill, types.Any, types.Any)
def _(context, builder, signature, args):
    return context.cast(builder, args[1], signature.args[1], signature.return_type)


def _mangling_args(record: types.Record) -> tuple[str, tuple[str]]:
    return type(record).__name__, (hashlib.sha256(record.name.encode()).hexdigest()[:16],)


# Compiled functions are linked by symbols that name the types of their arguments. Numba names a record type by a number
# that counts the types of the process. Kernels for worlds with different numbers of meters, if cached by different
# processes, could have equal symbols: one would call functions of the other and corrupt memory.
types.Record.mangling_args = property(_mangling_args)  # type: ignore[assignment,method-assign]

NUMBA_TYPES: Final = {
    "Int": types.uint32,
    "Float": types.float32,
    "IntVector": types.Array(types.uint32, 1, "C"),
    "FloatVector": types.Array(types.float32, 1, "C"),
    "IntMatrix": types.Array(types.uint32, 2, "C"),
    "FloatMatrix": types.Array(types.float32, 2, "C"),
}
# Field of `Tables` → its slot and its Numba type.
FIELDS: Final = {
    name: (slot, NUMBA_TYPES[annotation.__forward_arg__])
    for slot, (name, annotation) in enumerate(Tables.__annotations__.items())
}
SLOT_WORDS: Final = 3  # the address or the number, and the shape


class NativeTables:
    """The world's tables in memory that this object owns. Kernels get one pointer and read each table as an attribute.

    As a tuple of arrays the tables would be hundreds of machine values, passed to every rule and unpacked in each call:
    compiling the step would take a minute, and every call would be slow with few rows. Behind the pointer lies one slot
    per field of `Tables`: an address and a shape, or the number itself. Loads are marked invariant, so that the
    compiler can move them out of the loop over rows.
    """

    def __init__(self, tables: Tables) -> None:
        self._source = tables
        self.slots = np.zeros((len(tables), SLOT_WORDS), np.int64)
        self.tables: list[object] = []
        for slot, (_, kind), value in zip(self.slots, FIELDS.values(), tables, strict=True):
            if kind in (types.uint32, types.float32):
                slot[:1].view(np.uint32 if kind == types.uint32 else np.float32)[0] = value
                continue
            array = np.ascontiguousarray(value, np.dtype(kind.dtype.name))
            self.tables.append(array)
            slot[:] = array.ctypes.data, array.shape[0], array.shape[-1]
        self.address: int = self.slots.ctypes.data

    def __reduce__(self) -> tuple[type[NativeTables], tuple[Tables]]:
        """Copies build their own slots: addresses are valid in one process only."""
        return NativeTables, (self._source,)


class NativeTablesType(types.Type):
    """The Numba type of `NativeTables`."""

    def __init__(self) -> None:
        super().__init__("NativeTables")


native_tables_type: Final = NativeTablesType()
extending.register_model(NativeTablesType)(extending.models.OpaqueModel)
NativeTables._numba_type_ = native_tables_type  # spares Numba a type lookup at every call


@extending.unbox(NativeTablesType)
def _unbox(kind, value, c):
    number = c.pyapi.object_getattr_string(value, "address")
    address = c.pyapi.number_as_ssize_t(number)
    c.pyapi.decref(number)
    return extending.NativeValue(c.builder.inttoptr(address, cgutils.voidptr_t))


@extending.infer_getattr
class _Attributes(AttributeTemplate):
    key = NativeTablesType

    def generic_resolve(self, kind, name):
        return FIELDS[name][1] if name in FIELDS else None


def _load(builder, address):
    value = builder.load(address)
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


@extending.lower_getattr_generic(NativeTablesType)
def _get(context, builder, tables_type, pointer, name):
    slot, kind = FIELDS[name]
    word = ir.IntType(64)
    slots = builder.bitcast(pointer, word.as_pointer())
    words = [builder.gep(slots, [ir.Constant(word, SLOT_WORDS * slot + k)]) for k in range(SLOT_WORDS)]
    if not isinstance(kind, types.Array):
        return _load(builder, builder.bitcast(words[0], context.get_value_type(kind).as_pointer()))
    array = context.make_array(kind)(context, builder)
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    shape = [_load(builder, address) for address in words[1 : 1 + kind.ndim]]
    item = ir.Constant(word, size)
    strides = [item] if kind.ndim == 1 else [builder.mul(shape[1], item), item]
    data = builder.inttoptr(_load(builder, words[0]), array.data.type)
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=item, meminfo=None)
    return array._getvalue()


ROWS_AHEAD: Final = 6  # enough for the memory to arrive in time
CACHE_LINE: Final = 64  # bytes
PREFETCH_LINES: Final = 6  # cache lines per row, which hold a standard observation
WRITE, KEEP, DATA = 1, 3, 1  # arguments of LLVM's prefetch


@extending.intrinsic
def prefetch(typing, array, row):
    """Prefetch the start of array[row + ROWS_AHEAD], which may lie beyond the end.

    If the rows do not fit into the CPU cache, steps are up to twice as fast with it.
    """

    def code(context, builder, signature, args):
        view = context.make_array(signature.args[0])(context, builder, args[0])
        word, number, pointer = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
        row = context.cast(builder, args[1], signature.args[1], types.int64)
        wanted = builder.add(row, ir.Constant(word, ROWS_AHEAD))
        offset = builder.mul(wanted, builder.extract_value(view.strides, 0))
        start = builder.add(builder.ptrtoint(view.data, word), offset)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        hint = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        for line in range(PREFETCH_LINES):
            address = builder.inttoptr(builder.add(start, ir.Constant(word, CACHE_LINE * line)), pointer)
            builder.call(hint, [address, *(ir.Constant(number, n) for n in (WRITE, KEEP, DATA))])
        return context.get_dummy_value()

    return types.none(array, row), code
