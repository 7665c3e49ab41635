# mypy: disable-error-code="no-untyped-def,no-untyped-call,attr-defined,misc"
"""The world's tables as Numba sees them: one pointer, with every table an attribute.

As a tuple of arrays they would be hundreds of machine values, handed to every rule and unpacked at
every call; compiling the step took a minute and a town of one row crawled. Behind the pointer lies one
slot per field of `Tables`: an address and a shape, or the number itself. Nothing there changes while a
kernel runs, and the loads say so, which lets the compiler lift them out of the loop over rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    unbox,
)
from numba.np.arrayobj import populate_array

from townlet.town.world.tables import Tables

KINDS: Final = {
    "Int": types.uint32,
    "Float": types.float32,
    "IntRow": types.Array(types.uint32, 1, "C"),
    "FloatRow": types.Array(types.float32, 1, "C"),
    "IntGrid": types.Array(types.uint32, 2, "C"),
    "FloatGrid": types.Array(types.float32, 2, "C"),
}
_ANNOTATIONS: Final = ((name, kind.__forward_arg__) for name, kind in Tables.__annotations__.items())
FIELDS: Final = {name: (place, KINDS[kind]) for place, (name, kind) in enumerate(_ANNOTATIONS)}
SLOT: Final = 3  # words: address or number, rows, columns


class Handle:
    """Tables laid out for kernels; keeps alive what it points to."""

    def __init__(self, tables: Tables) -> None:
        self._source = tables
        self.slots = np.zeros((len(tables), SLOT), np.int64)
        self.tables: list[object] = []
        for slot, (_, kind), value in zip(self.slots, FIELDS.values(), tables, strict=True):
            if kind in (types.uint32, types.float32):
                slot[:1].view(np.uint32 if kind == types.uint32 else np.float32)[0] = value
                continue
            array = np.ascontiguousarray(value, np.dtype(kind.dtype.name))
            self.tables.append(array)
            slot[:] = array.ctypes.data, array.shape[0], array.shape[-1]
        self.address: int = self.slots.ctypes.data

    def __reduce__(self) -> tuple[type[Handle], tuple[Tables]]:
        """A copy lays its own tables out: addresses mean nothing elsewhere."""
        return Handle, (self._source,)


class HandleType(types.Type):
    """The Numba type of a handle."""

    def __init__(self) -> None:
        super().__init__("TownTables")


handle_type: Final = HandleType()
register_model(HandleType)(models.OpaqueModel)
Handle._numba_type_ = handle_type  # so that Numba finds it without a search at every call


@unbox(HandleType)
def _unbox(kind, value, c):
    number = c.pyapi.object_getattr_string(value, "address")
    address = c.pyapi.number_as_ssize_t(number)
    c.pyapi.decref(number)
    return NativeValue(c.builder.inttoptr(address, cgutils.voidptr_t))


@infer_getattr
class _Attributes(AttributeTemplate):
    key = HandleType

    def generic_resolve(self, kind, name):
        return FIELDS[name][1] if name in FIELDS else None


def _load(builder, address):
    value = builder.load(address)
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


@lower_getattr_generic(HandleType)
def _get(context, builder, handle_kind, handle, name):
    place, kind = FIELDS[name]
    word = ir.IntType(64)
    slots = builder.bitcast(handle, word.as_pointer())
    slot = [builder.gep(slots, [ir.Constant(word, SLOT * place + k)]) for k in range(SLOT)]
    if not isinstance(kind, types.Array):
        return _load(builder, builder.bitcast(slot[0], context.get_value_type(kind).as_pointer()))
    array = context.make_array(kind)(context, builder)
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    shape = [_load(builder, s) for s in slot[1 : 1 + kind.ndim]]
    item = ir.Constant(word, size)
    strides = [item] if kind.ndim == 1 else [builder.mul(shape[1], item), item]
    data = builder.inttoptr(_load(builder, slot[0]), array.data.type)
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=item, meminfo=None)
    return array._getvalue()
