"""The town as a batched environment (`interfaces.vec_env.VecEnv`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from townlet.interfaces.vec_env import Discrete, FinalObs, MaskedObs, Step
from townlet.rng import Streams
from townlet.town.engines.engine import make_engine
from townlet.town.state import StartsSpec, cause_codes, cause_names, to_numpy
from townlet.town.world.tables import World

if TYPE_CHECKING:
    from townlet.town.engines.torch_engine import TorchEngine


class Town:
    """N rows of one world as tensors. Each step overwrites the tensors that the previous one returned.

    Rows are independent of each other, so a process can simulate a part of a larger batch.

    Args:
        world: the world, as from `townlet.load_world`.
        rows: the number of rows, N.
        engine: `"numba"`, `"torch"`, `"compiled"` (`torch.compile`), or `"auto"`, the fastest for the device.
        device: the device of the tensors; the Numba engine needs `"cpu"`.
        threads: the number of threads of the Numba engine.
        starts: exploring starts: a fraction of the episodes starts in random states.
        first: the number of the first row in the larger batch.
    """

    exact = True
    autoreset_steps = False

    def __init__(
        self, world: World, rows: int, *, engine: str = "auto", device: str = "cpu", threads: int | None = None,
        starts: StartsSpec | None = None, first: int = 0,
    ) -> None:  # fmt: skip
        self.world, self.rows, self.device = world, rows, device
        self.engine = make_engine(world, rows, engine, device=device, threads=threads, starts=starts)
        if first:  # a row's number identifies its random stream
            self.engine.restore({"row": np.arange(first, first + rows, dtype=np.int32)})
        self.layout = world.layout
        self.actions = Discrete(world.actions)
        self.components = world.rewards
        self.cause_names = cause_names(world)
        self._step = self._read_step()
        no_rows = torch.zeros(0, dtype=torch.int64, device=device)
        self._none_ended = FinalObs(no_rows, self._step.obs[no_rows], self._step.mask[no_rows])

    def _read_step(self) -> Step:
        e = self.engine
        return Step(*map(torch.as_tensor, (e.obs, e.mask, e.reward, e.components, e.terminated, e.truncated)))

    def _refresh(self) -> MaskedObs:
        self._step = self._read_step()
        return MaskedObs(self._step.obs, self._step.mask)

    def reset(self, seed: int) -> MaskedObs:
        """Start new episodes; the same seed gives the same towns on every engine."""
        self.engine.reset(Streams(seed).key("town"))
        return self._refresh()

    def step(self, actions: Tensor) -> Step:
        """Take one action [N] int64 in every row; rows whose episode ended start the next one."""
        self.engine.step(actions if self.can_step_in_place else actions.numpy())
        return self._step  # shares memory with the engine

    @property
    def can_step_in_place(self) -> bool:
        return self.engine.name != "numba"

    @property
    def _torch_engine(self) -> TorchEngine:
        """The engine, which is a torch engine if `can_step_in_place`."""
        return cast("TorchEngine", self.engine)

    def track_truncations(self) -> None:
        self._torch_engine.track_truncations()

    def step_in_place(self, actions: Tensor) -> Step:
        self._torch_engine.step_in_place(actions)
        return self._step

    def truncated_obs(self) -> Tensor:
        return self._torch_engine.truncated_obs()

    def final_values(self) -> Tensor:
        return self._torch_engine.last_meters

    def written_tensors(self) -> list[Tensor]:
        return self._torch_engine.written_tensors()

    def final_obs(self) -> FinalObs:
        """Final observations of the episodes that ended in the last step."""
        rows = torch.nonzero(self._step.terminated | self._step.truncated).squeeze(1)
        if not len(rows):  # the usual case
            return self._none_ended
        obs, mask = self.engine.final_obs(rows if self.can_step_in_place else rows.numpy())
        return FinalObs(rows, torch.as_tensor(obs), torch.as_tensor(mask))

    def final_meters(self, ended: FinalObs) -> Tensor:
        """Meters at the end of the episodes that the last step ended, before the reset [k, M], on the CPU."""
        return torch.from_numpy(self.engine.final_state(to_numpy(ended.rows), "meters")["meters"])

    def causes(self, ended: FinalObs) -> Tensor:
        """Causes of the episode ends in the last step [k] int64, on the CPU: indices of `cause_names`."""
        return torch.from_numpy(cause_codes(self.world, self.final_meters(ended).numpy()))

    def set(self, rows: Any = None, **settings: Any) -> MaskedObs:
        """Set `multiplier` [N], `active` [N] (bit m: meter m) or `reward_mix` [N, R], from the next step on.

        With `rows` [k], only those rows change, and the settings have k values instead of N. Returns the new
        observation and mask of all rows: with `mask_unaffordable` the mask depends on the active meters, and with
        exploring starts a row that has not stepped yet restarts its episode.
        """
        self.engine.set({name: to_numpy(values) for name, values in settings.items()}, rows)
        self._step = self._step._replace(obs=torch.as_tensor(self.engine.obs), mask=torch.as_tensor(self.engine.mask))
        return MaskedObs(self._step.obs, self._step.mask)

    def state(self) -> Mapping[str, Any]:
        """A copy of everything that determines future steps, by name."""
        return self.engine.state()

    def restore(self, state: Mapping[str, Any]) -> MaskedObs:
        """Continue exactly from a state."""
        self.engine.restore(dict(state))
        return self._refresh()

    def close(self) -> None:
        self.engine.close()
