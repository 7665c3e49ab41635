"""A crew of processes that torch has brought together, as `torchrun` starts them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from townlet.distributed.environment import LEADER
from townlet.distributed.process_group import Crew
from townlet.errors import TownletError

PLACE: Final = re.compile(r"^\[.*?\] ")  # in gloo's own files
PATIENCE: Final = timedelta(hours=12)  # longer than any evaluation; who is dead is noticed at once


class Gone(TownletError):
    """Another process of the crew has ended, or cannot be reached."""

    exit_code = 1


class Team(Crew):
    """Those that `torchrun` has started. Numbers on a GPU are added up there, words and rows go by the network."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.beside = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))  # of them on this machine
        self.fix = "see what it printed"
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", self.rank)) % torch.cuda.device_count())
        with self._together():
            dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=PATIENCE)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """What all do at once; torch says it with a RuntimeError when one of them is not there."""
        try:
            yield
        except RuntimeError as error:
            why = PLACE.sub("", str(error).strip()).partition("\n")[0].partition(". ")[0]
            what = f"one of the {self.size} processes that train together is gone or cannot be reached ({why})"
            raise Gone(what, self.fix) from None

    def add_up(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in the same tensor."""
        with self._together():
            dist.all_reduce(tensor)
        return tensor

    def say(self, word: Any) -> None:
        """From the leader to all others: what JSON knows."""
        self._broadcast(torch.frombuffer(bytearray(json.dumps(word).encode()), dtype=torch.uint8))

    def hear(self) -> Any:
        """What the leader says next."""
        return json.loads(self._broadcast(None).numpy().tobytes())

    def _broadcast(self, said: Tensor | None) -> Tensor:
        size = torch.tensor([0 if said is None else len(said)])
        with self._together():
            dist.broadcast(size, LEADER)
            words = torch.zeros(int(size), dtype=torch.uint8) if said is None else said
            dist.broadcast(words, LEADER)
        return words

    def gather(self, rows: Tensor) -> list[Tensor] | None:
        """Tensors of the same shape from all, on the CPU, to the leader; None to the others."""
        mine = rows.detach().to("cpu").contiguous()
        parts = [torch.empty_like(mine) for _ in range(self.size)] if self.rank == LEADER else None
        with self._together():
            dist.gather(mine.view(torch.uint8), parts and [part.view(torch.uint8) for part in parts], LEADER)
        return parts

    def gather_lines(self, lines: Tensor) -> list[Tensor]:
        """Tables [n, C] of all, of which each may have another number of lines, to everybody."""
        counts = torch.zeros(self.size, dtype=torch.int64)
        counts[self.rank] = len(lines)
        most = int(self.add_up(counts).max())
        padded = torch.zeros((most, lines.shape[1]), dtype=lines.dtype)
        padded[: len(lines)] = lines
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        with self._together():
            dist.all_gather(parts, padded)
        return [part[:count] for part, count in zip(parts, counts.tolist(), strict=True)]

    def end(self) -> None:
        """Leave, without waiting for anybody."""
        if dist.is_initialized():
            dist.destroy_process_group()
