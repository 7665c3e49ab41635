"""One seed into named random streams. Nothing else in Townlet seeds a generator."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from townlet.errors import TownletError

if TYPE_CHECKING:
    import torch

MAX_SEED: Final = 2**63 - 1


def fresh_seed() -> int:
    """A new seed from the operating system, small enough for any file format to keep exactly."""
    return secrets.randbits(53)


@dataclass(frozen=True)
class Streams:
    """Independent random streams by name: the same seed and name give the same stream in every process."""

    seed: int
    path: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given: Any = self.seed
        whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
        if not whole or not 0 <= given <= MAX_SEED:
            raise TownletError(f"seed cannot be {given!r}", f"write a whole number from 0 to {MAX_SEED}")
        object.__setattr__(self, "seed", int(given))

    def numpy(self, name: str) -> np.random.Generator:
        """A NumPy generator at the start of the stream."""
        return np.random.Generator(np.random.PCG64(self._sequence("numpy", name)))

    def torch(self, name: str, device: str = "cpu") -> torch.Generator:
        """A torch generator on the device, at the start of the stream."""
        import torch  # here, so that a town without torch stays light

        return torch.Generator(device).manual_seed(self._bits("torch", name, 63))

    def key(self, name: str) -> int:
        """A key of 62 bits for draws by counter, which need no generator."""
        return self._bits("key", name, 62)

    def child(self, name: str) -> Streams:
        """Streams of a part, apart from those of every other part and of the whole."""
        return Streams(self.seed, (*self.path, name))

    def _bits(self, kind: str, name: str, bits: int) -> int:
        return int(self._sequence(kind, name).generate_state(1, np.uint64)[0]) >> (64 - bits)

    def _sequence(self, kind: str, name: str) -> np.random.SeedSequence:
        # Each part is hashed with its length before it, so that no two lists of names run together.
        # Python's own hash() differs between processes.
        words = (part.encode("utf-8", "surrogatepass") for part in (kind, *self.path, name))
        digest = blake2b(b"".join(len(word).to_bytes(8, "little") + word for word in words), digest_size=16).digest()
        return np.random.SeedSequence(self.seed, spawn_key=tuple(np.frombuffer(digest, "<u4").tolist()))
