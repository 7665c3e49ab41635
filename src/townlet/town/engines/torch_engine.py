"""The tensor engine: state as tensors, the whole step as one function that torch can compile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.cuda_graph import Recorded, compiled
from townlet.errors import TownletError
from townlet.town.engines.torch_observe import observe
from townlet.town.engines.torch_state import (
    LAYOUT,
    PASSING,
    Row,
    Tensors,
    as_numpy,
    chosen_of,
    kinds,
    meter_names,
    write,
)
from townlet.town.engines.torch_tables import tensor_tables, unrolled
from townlet.town.exploring_starts import SHARE, StartsSpec, start_table
from townlet.town.reset import begin, explore, shuffle
from townlet.town.rules import foretell
from townlet.town.scene import Scene
from townlet.town.state import (
    FIELDS,
    State,
    check_actions,
    check_settings,
    check_state,
    choose_rows,
    fresh,
    nothing_used,
    places_of,
    records,
)
from townlet.town.step import live
from townlet.town.view import scene_of
from townlet.town.world.tables import World

EVERY = slice(None)


class TensorEngine:
    """A town of N rows on any torch device. Every step writes into the same tensors."""

    def __init__(
        self,
        world: World,
        rows: int,
        *,
        autoreset: bool = True,
        device: str = "cpu",
        compiles: bool = False,
        starts: StartsSpec | None = None,
    ) -> None:
        self.name = "compiled" if compiles else "torch"
        self.world, self.rows, self.autoreset, self.device = world, rows, autoreset, device
        self._w = tensor_tables(world.tables, device)
        self._starts = unrolled(start_table(world, starts).tolist())
        self._town: Any = torch.arange(rows, device=device) if world.tables.shuffled else 0
        self._meters = meter_names(world)
        made = partial(torch.zeros, device=device)
        self._state = {name: made(rows, dtype=kind) for name, kind in kinds(world).items()}
        if world.tables.shuffled:
            shapes = {name: (rows, getattr(self._w, name).shape[1]) for name in LAYOUT}
            self._state |= {name: made(shapes[name], dtype=torch.int32) for name in LAYOUT}
        passing = (*PASSING, *self._meters, *LAYOUT)
        self._final = {name: made(v.shape, dtype=v.dtype) for name, v in self._state.items() if name in passing}
        self._cut: Tensors = {}  # of each row's last life that time cut short, where somebody asked for it
        self._key = made((), dtype=torch.int64)
        self._mix = torch.ones((rows, len(world.rewards)), device=device)
        self._actions = made(rows, dtype=torch.int64)
        self.obs, self.mask = made((rows, world.layout.size)), made((rows, len(world.actions)), dtype=torch.bool)
        self.reward, self.components = made(rows), made((rows, len(world.rewards)))
        self.terminated, self.truncated = made(rows, dtype=torch.bool), made(rows, dtype=torch.bool)
        self.used = np.zeros(0, np.int64)
        self._write = compiled(self._step, device) if compiles else self._step
        self._advance: Callable[[], None] = self._step_here
        self._to_be_recorded = compiles and device.startswith("cuda")
        self.restore(fresh(world, rows))

    @property
    def _shown(self) -> Tensors:
        """What a step says of itself."""
        names = ("obs", "mask", "reward", "components", "terminated", "truncated")
        return {name: getattr(self, name) for name in names}

    def reset(self, key: int) -> None:
        """Begin episode 0 of every row in the random stream `key`."""
        self._key.fill_(key)
        self._state["episode"].zero_()
        self._begin_chosen(torch.ones(self.rows, dtype=torch.bool, device=self.device))

    def reset_rows(self, rows: Any) -> None:
        """Begin the next episode of the chosen rows."""
        chosen = torch.as_tensor(rows, device=self.device)
        self._state["episode"] += chosen.to(torch.int32)
        self._begin_chosen(chosen)

    def _begin_chosen(self, chosen: Tensor) -> None:
        write(chosen_of(chosen, self._begin(self._state), self._state), self._state)
        for shown in (self.reward, self.components, self.terminated, self.truncated):
            shown[chosen] = 0
        self._look()

    def _begin(self, values: Tensors) -> Tensors:
        """11. The first moment of every row's episode, with a new layout where the world shuffles."""
        s = self._row(values)
        begin(s, self._key, self._w)
        if self._starts[SHARE][0] > 0:
            explore(s, self._key, self._starts)
        layout = self._shuffled(s) if self._w.shuffled else {}
        s.here = self._kind_at(layout)[self._town, s.cell]
        return values | s.values(values, self._meters) | layout

    def _row(self, values: Tensors) -> Row:
        return Row(values, self._meters)

    def _kind_at(self, values: Tensors) -> Tensor:
        """The layout of these rows: their own, or the one that all share."""
        return values["kind_at"] if self._w.shuffled else self._w.kind_at

    def _shuffled(self, s: Row) -> Tensors:
        none, cells = self._w.none, self._w.next_cell.shape[1]
        places: list[Any] = [None] * none
        shuffle(places, list(places), s, self._key, cells, self._w)
        cell_of = torch.stack(places, 1).to(torch.int32)
        kind_at = torch.full((self.rows, cells + 1), none, dtype=torch.int32, device=self.device)
        kind_at[:, cells] = none + 1
        kinds = torch.arange(none, dtype=torch.int32, device=self.device).expand(self.rows, -1)
        return {"kind_at": kind_at.scatter(1, cell_of.to(torch.int64), kinds), "cell_of": cell_of}

    def _step(
        self, values: Tensors, final: Tensors, cut: Tensors, shown: Tensors, mix: Tensor, actions: Tensor
    ) -> None:
        """The whole step of all rows, written into the state `values`, their last moments and what is shown."""
        w, town, s = self._w, self._town, self._row(values)
        kind_at, cell_of = self._kind_at(values), values["cell_of"] if w.shuffled else w.cell_of
        components = torch.zeros_like(mix)
        reward, dead, late = live(s, actions, kind_at, cell_of, town, mix, components, EVERY, w)
        last = values | s.values(values, self._meters)
        if self.autoreset:
            over = dead | late
            start = self._begin(last | {"episode": last["episode"] + 1})
            after = chosen_of(over, start, last)
            # Not the layout itself: a compiled graph would copy it only after the next one has been written over it.
            last |= chosen_of(over, values, {name: final[name] for name in LAYOUT if name in final})
        else:
            ended = shown["terminated"] | shown["truncated"]
            last = after = chosen_of(ended, values, last)
            reward, components = reward * ended.logical_not(), components * ended.logical_not().unsqueeze(1)
            dead, late = torch.where(ended, shown["terminated"], dead), torch.where(ended, shown["truncated"], late)
        obs, mask = observe(self._row(after), self._kind_at(after), town, self.world, w)
        write(chosen_of(late, last, cut), cut)
        write({name: last[name] for name in final}, final)
        write({name: after[name] for name in values if name in final or name == "episode"}, values)
        told = {"reward": reward, "components": components, "terminated": dead, "truncated": late}
        write(told | {"obs": obs, "mask": mask}, shown)

    def _step_here(self) -> None:
        self._write(self._state, self._final, self._cut, self._shown, self._mix, self._actions)

    def keep_cut(self) -> None:
        """From now on the last moment of every life that time cuts short is kept, until the next one in its row is."""
        self._cut = {name: values.clone() for name, values in self._final.items()}

    def go(self, actions: Tensor) -> None:
        """A step that nobody looks at: actions [N] int64 of the device, each of which exists."""
        self._actions.copy_(actions)
        self._step_here()

    def cut_obs(self) -> Tensor:
        """What each row saw last in its last life that time cut short [N, D]; anything where there was none."""
        values = self._state | self._cut
        return observe(self._row(values), self._kind_at(values), self._town, self.world, self._w)[0]

    def written(self) -> list[Tensor]:
        """All that a step writes."""
        return [*self._state.values(), *self._final.values(), *self._cut.values(), *self._shown.values()]

    @property
    def last_meters(self) -> Tensor:
        """The meters of all rows as the last step left them, before any reset [N, M]."""
        return torch.stack([self._final[name] for name in self._meters], 1)

    def step(self, actions: Any) -> None:
        """One step of every row."""
        actions = torch.as_tensor(actions, device=self.device)
        check_actions(actions, self.rows)
        if self.device == "cpu" and not bool(((actions >= 0) & (actions < len(self.world.actions))).all()):
            raise TownletError("some action does not exist", f"give whole numbers from 0 to {self._w.wait}")
        self._actions.copy_(actions)
        if len(self.used):
            self._foretell()
        if self._to_be_recorded:
            self._to_be_recorded = False
            self._advance = Recorded(self._step_here, self.written())
        self._advance()

    def watch(self, rows: int) -> None:
        """From now on every step writes into `used` what the first rows really used."""
        self.used = nothing_used(self.world, max(rows, len(self.used)))

    def _foretell(self) -> None:
        """Write into `used` what its rows will use by these actions; an ended row that stays so uses nothing."""
        rows = len(self.used)
        s = self._row({name: values[:rows] for name, values in self._state.items()})
        town = self._town[:rows] if self._w.shuffled else 0
        told = foretell(s, self._actions[:rows], self._kind_at(self._state), town, self._w)
        if not self.autoreset:
            told = torch.where((self.terminated | self.truncated)[:rows], 2 * self._w.none, told)
        self.used[:] = told.cpu().numpy()

    def _look(self) -> None:
        s = self._row(self._state)
        obs, mask = observe(s, self._kind_at(self._state), self._town, self.world, self._w)
        write({"obs": obs, "mask": mask}, self._shown)

    def _ended(self, rows: Any) -> Tensors:
        """Every field, before their reset, of rows that ended in the last step."""
        index = torch.as_tensor(rows, device=self.device).to(torch.int64)
        return {name: values[index] for name, values in (self._state | self._final).items()}

    def final(self, rows: Any = None) -> tuple[Tensor, Tensor]:
        """Observation and mask, before their reset, of rows that ended in the last step."""
        if rows is None:
            rows = torch.nonzero(self.terminated | self.truncated).squeeze(1)
        ended = self._ended(rows)
        town = torch.arange(len(rows), device=self.device) if self._w.shuffled else 0
        return observe(self._row(ended), self._kind_at(ended), town, self.world, self._w)

    def final_meters(self, rows: Any) -> NDArray[np.float32]:
        """The meters, before their reset, of rows that ended in the last step [k, M]; a copy."""
        return self._together(self._ended(rows))

    def _together(self, values: Tensors) -> NDArray[np.float32]:
        """The meters of some rows [k, M], a copy."""
        meters: NDArray[np.float32] = torch.stack([values[name] for name in self._meters], 1).cpu().numpy()
        return meters

    def final_state(self, rows: Any, *names: str) -> State:
        """State fields and `cell_of`, before their reset, of rows that ended in the last step [k, …]; copies."""
        ended = self._ended(rows)
        ended["episode"] = ended["episode"] - int(self.autoreset)  # those rows have begun the next one
        found: State = {name: as_numpy(name, ended[name]) for name in names if name in FIELDS}
        if "meters" in names:
            found["meters"] = self._together(ended)
        if "cell_of" in names:
            kind_at = ended["kind_at"] if self._w.shuffled else self._w.kind_at.expand(len(rows), -1)
            found["cell_of"] = places_of(kind_at.cpu().numpy(), self.world)
        return found

    def peek(self, *names: str) -> State:
        """The state as NumPy arrays [N, ...], copies; only the named fields where names are given."""
        shared = {"kind_at": self._w.kind_at, "cell_of": self._w.cell_of, "reward_mix": self._mix}
        fields = {name: values for name, values in (shared | self._state).items() if name not in self._meters}
        wanted = names or ("meters", *fields)
        return {n: self._together(self._state) if n == "meters" else as_numpy(n, fields[n]) for n in wanted}

    def records(self, rows: int) -> NDArray[np.void]:
        """The first rows as records, copies."""
        first = {name: values[:rows] for name, values in self._state.items()}
        return records({name: as_numpy(name, first[name]) for name in FIELDS} | {"meters": self._together(first)})

    def state(self) -> State:
        """A copy of everything that decides what happens next."""
        ends = {"terminated": self.terminated, "truncated": self.truncated, "key": self._key}
        return self.peek() | {name: as_numpy(name, values) for name, values in ends.items()}

    def restore(self, state: State) -> None:
        """Take over the given fields, and show what follows from them."""
        check_state(self.world, self.rows, state)
        ours = self._state | {"terminated": self.terminated, "truncated": self.truncated}
        ours |= {"reward_mix": self._mix, "key": self._key}
        for name, values in state.items():
            given = torch.from_numpy(np.array(values)).to(self.device)
            if name == "meters":
                write(dict(zip(self._meters, given.unbind(1), strict=True)), self._state)
            elif name in ours:  # a layout that all share is the world's
                ours[name].copy_(given)
        if self.autoreset:  # what those rows saw last is not part of a state
            self.terminated.zero_()
            self.truncated.zero_()
        here = self._kind_at(self._state)[self._town, self._state["cell"].to(torch.int32)]
        self._state["here"].copy_(here)
        write({name: self._state[name] for name in self._final}, self._final)
        self._look()

    def set(self, settings: State, rows: Any = None) -> None:
        """Give some rows (all by default) other settings, one value for each of them."""
        chosen = torch.from_numpy(choose_rows(rows, self.rows)).to(self.device)
        check_settings(self.world, len(chosen), settings)
        for name, values in settings.items():
            now = self._mix if name == "reward_mix" else self._state[name]
            now[chosen] = torch.from_numpy(np.array(values)).to(self.device, now.dtype)
        if "active" not in settings:
            return  # nothing that is seen or allowed follows from the others
        if self._starts[SHARE][0] > 0:  # a life that has not begun yet begins with the meters that are now in play
            young = torch.zeros_like(self.terminated).index_fill(0, chosen, True) & (self._state["age"] == 0)
            write(chosen_of(young, self._begin(self._state), self._state), self._state)
        self._look()

    def scene(self, row: int, action: int | None = None) -> Scene:
        """One row as people see it."""
        return scene_of(self, row, action)

    def close(self) -> None:
        """Nothing to give back that Python does not."""
