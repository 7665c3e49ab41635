"""Named random streams from one seed, the source of all randomness in training and evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from townlet.errors import TownletError

if TYPE_CHECKING:
    import torch

MAX_SEED: Final = 2**63 - 1


@dataclass(frozen=True)
class Streams:
    """Independent random streams by name; the same seed and name give the same stream in every process."""

    seed: int
    path: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seed: Any = self.seed
        is_integer = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
        if not is_integer or not 0 <= seed <= MAX_SEED:
            raise TownletError(f"seed cannot be {seed!r}", f"write an integer from 0 to {MAX_SEED}")
        object.__setattr__(self, "seed", int(seed))

    def numpy(self, name: str) -> np.random.Generator:
        """A NumPy generator at the start of the stream."""
        return np.random.Generator(np.random.PCG64(self._sequence("numpy", name)))

    def torch(self, name: str, device: str = "cpu") -> torch.Generator:
        """A torch generator on the device, at the start of the stream."""
        import torch  # imported lazily: towns work without it

        return torch.Generator(device).manual_seed(self._bits("torch", name, 63))

    def key(self, name: str) -> int:
        """A 62-bit key for counter-based draws, which need no generator."""
        return self._bits("key", name, 62)

    def child(self, name: str) -> Streams:
        """Streams of a component, independent of those of its parent and siblings."""
        return Streams(self.seed, (*self.path, name))

    def _bits(self, kind: str, name: str, bits: int) -> int:
        return int(self._sequence(kind, name).generate_state(1, np.uint64)[0]) >> (64 - bits)

    def _sequence(self, kind: str, name: str) -> np.random.SeedSequence:
        # Length prefixes keep different lists of names distinct; Python's hash() differs between processes.
        words = (part.encode("utf-8", "surrogatepass") for part in (kind, *self.path, name))
        digest = blake2b(b"".join(len(word).to_bytes(8, "little") + word for word in words), digest_size=16).digest()
        return np.random.SeedSequence(self.seed, spawn_key=tuple(np.frombuffer(digest, "<u4").tolist()))
