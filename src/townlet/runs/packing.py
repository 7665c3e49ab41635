"""A state as bytes, for a database: safetensors, whose metadata hold the order of the leaves and those in JSON."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final

import torch
from safetensors import SafetensorError, deserialize, serialize

from townlet.errors import TownletError
from townlet.interfaces.state import State
from townlet.runs.checkpoint_files import DTYPES, check_types, tensor_spec
from townlet.runs.serialization import flatten, unflatten

LEAVES: Final = "leaves"
HEADER_SIZE: Final = 8  # bytes at the beginning of safetensors that hold the length of its header
DIGEST_SIZE: Final = 32


def pack(state: State) -> bytes:
    """The state with a checksum."""
    leaves = flatten(state)
    check_types(leaves)
    tensors = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, torch.Tensor)}
    values = [[name] if name in tensors else [name, leaf] for name, leaf in leaves.items()]
    data = serialize(
        {name: tensor_spec(tensor) for name, tensor in tensors.items()},
        {LEAVES: json.dumps(values, allow_nan=False)},
    )
    return sha256(data).digest() + data


def unpack(packed: bytes, what: str) -> State:
    """The state in these bytes; raises TownletError if they are damaged. `what` names them in the message."""
    digest, data = packed[:DIGEST_SIZE], packed[DIGEST_SIZE:]
    if sha256(data).digest() != digest:
        raise TownletError(f"{what} is damaged: it does not match its checksum", "restore a backup of the database")
    try:
        length = int.from_bytes(data[:HEADER_SIZE], "little")
        header = json.loads(data[HEADER_SIZE : HEADER_SIZE + length])
        tensors = {name: _tensor(found) for name, found in deserialize(data)}  # type: ignore[no-untyped-call]
        leaves = {
            name: value[0] if value else tensors[name] for name, *value in json.loads(header["__metadata__"][LEAVES])
        }
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise TownletError(f"{what} cannot be read: {str(error)[:120]}", "use the release that wrote it") from None
    return unflatten(leaves)


def _tensor(found: dict[str, Any]) -> torch.Tensor:
    dtype = DTYPES[found["dtype"]]
    if not found["data"]:
        return torch.empty(found["shape"], dtype=dtype)
    return torch.frombuffer(bytearray(found["data"]), dtype=dtype).reshape(found["shape"])
