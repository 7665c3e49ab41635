"""The town as a batched environment (`contract.vec_env.VecEnv`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.interfaces.vec_env import Discrete, FinalObs, MaskedObs, Step
from townlet.rng import Streams
from townlet.town.engines.engine import make_engine
from townlet.town.state import StartsSpec, cause_codes, cause_names, to_numpy
from townlet.town.world.tables import World

if TYPE_CHECKING:
    from townlet.town.engines.torch_engine import TensorEngine


class Town:
    """N rows of one world as tensors. On the CPU they share memory with the engine and are reused.

    They are rows `first` and following of a larger town: what happens to a row does not depend on the others.
    """

    exact = True
    autoreset_steps = False

    def __init__(
        self,
        world: World,
        rows: int,
        *,
        engine: str = "auto",
        device: str = "cpu",
        threads: int | None = None,
        starts: StartsSpec | None = None,
        first: int = 0,
    ) -> None:
        self.world, self.rows, self.device = world, rows, device
        self.engine = make_engine(world, rows, engine, device=device, threads=threads, starts=starts)
        if first:
            self.engine.restore({"row": np.arange(first, first + rows, dtype=np.int32)})
        self.layout = world.layout
        self.actions = Discrete(world.actions)
        self.components = world.rewards
        self.cause_names = cause_names(world)
        self._step = self._tensors()
        nobody = torch.zeros(0, dtype=torch.int64, device=device)
        self._nobody = FinalObs(nobody, self._step.obs[nobody], self._step.mask[nobody])

    def _tensors(self) -> Step:
        e = self.engine
        return Step(*map(torch.as_tensor, (e.obs, e.mask, e.reward, e.components, e.terminated, e.truncated)))

    def _seen(self) -> MaskedObs:
        self._step = self._tensors()
        return MaskedObs(self._step.obs, self._step.mask)

    def reset(self, seed: int) -> MaskedObs:
        """Begin anew; the same seed gives the same towns on every engine."""
        self.engine.reset(Streams(seed).key("town"))
        return self._seen()

    def track_usage(self, rows: int) -> None:
        """From now on every step writes into `used` what the first rows really used."""
        self.engine.track_usage(rows)

    @property
    def used(self) -> NDArray[np.int64]:
        """What each watched row used in the last step, reused: see `sim.rules.foretell`."""
        return self.engine.used

    def step(self, actions: Tensor) -> Step:
        """Act in every row: actions [N] int64."""
        if self.engine.name == "numba":  # the engine writes into the memory of the same tensors
            self.engine.step(actions.numpy())
            return self._step
        self.engine.step(actions)
        self._step = self._tensors()
        return self._step

    @property
    def can_step_in_place(self) -> bool:
        """The tensor engine needs nobody to look at it."""
        return self.engine.name != "numba"

    @property
    def _tensor(self) -> TensorEngine:
        """The tensor engine; only if `can_step_in_place`."""
        return cast("TensorEngine", self.engine)

    def track_truncations(self) -> None:
        """From now on `truncated_obs` can be asked for."""
        self._tensor.track_truncations()

    def step_in_place(self, actions: Tensor) -> Step:
        """As `step`; nothing is checked, and the host waits for nothing."""
        self._tensor.step_in_place(actions)
        return self._step

    def truncated_obs(self) -> Tensor:
        """What each row saw last in its last life that time cut short [N, D]; anything where there was none."""
        return self._tensor.truncated_obs()

    def last(self) -> Tensor:
        """The meters of all rows as the last step left them, before any reset [N, M]."""
        return self._tensor.last_meters

    def written_tensors(self) -> list[Tensor]:
        """All that a step writes."""
        return self._tensor.written_tensors()

    def final_obs(self) -> FinalObs:
        """What rows that ended in the last step saw before their reset."""
        rows = torch.nonzero(self._step.terminated | self._step.truncated).squeeze(1)
        if not len(rows):  # most steps end no life
            return self._nobody
        obs, mask = self.engine.final_obs(rows if self.engine.name != "numba" else rows.numpy())
        return FinalObs(rows, torch.as_tensor(obs), torch.as_tensor(mask))

    def final_meters(self, ended: FinalObs) -> Tensor:
        """The meters of rows that ended in the last step, before their reset [k, M], on the CPU."""
        return torch.from_numpy(self.engine.final_meters(to_numpy(ended.rows)))

    def causes(self, ended: FinalObs) -> Tensor:
        """Why rows ended in the last step [k] int64, on the CPU: places in `cause_names`."""
        return torch.from_numpy(cause_codes(self.world, self.engine.final_meters(to_numpy(ended.rows))))

    def set(self, rows: Any = None, **settings: Any) -> MaskedObs:
        """Set `multiplier` [N], `active` [N] (bit m: meter m) or `reward_mix` [N, R], from the next step on.

        With `rows` [k], whole numbers, only those rows change, and each setting has k values. Gives what all
        rows see now: in a world with `mask_unaffordable` the mask follows the meters in play; with exploring
        starts a row that has not stepped yet begins its life anew, with the meters that are now in play.
        """
        self.engine.set({name: to_numpy(values) for name, values in settings.items()}, rows)
        self._step = self._step._replace(obs=torch.as_tensor(self.engine.obs), mask=torch.as_tensor(self.engine.mask))
        return MaskedObs(self._step.obs, self._step.mask)

    def state(self) -> Mapping[str, Any]:
        """Everything that decides what happens next, by name."""
        return self.engine.state()

    def restore(self, state: Mapping[str, Any]) -> MaskedObs:
        """Go on exactly where `state` was taken."""
        self.engine.restore(dict(state))
        return self._seen()

    def close(self) -> None:
        """Give back the engine's threads."""
        self.engine.close()
