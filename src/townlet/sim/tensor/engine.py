"""The tensor engine: state as tensors, the whole step as one function that torch can compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.errors import TownletError
from townlet.sim.exploring import SHARE, StartsSpec, start_table
from townlet.sim.rules import foretell
from townlet.sim.scene import Scene
from townlet.sim.starts import begin, explore, shuffle
from townlet.sim.state import (
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
from townlet.sim.step import live
from townlet.sim.tensor.observe import observe
from townlet.sim.tensor.tables import tensor_tables, unrolled
from townlet.sim.view import scene_of
from townlet.world.tables import World

Tensors = dict[str, Tensor]
EVERY = slice(None)

COMPILER: dict[str, Any] = {
    "fullgraph": True,
    "dynamic": False,
    # Else torch counts every further engine as a recompilation of the first one, and gives up at the ninth.
    "isolate_recompiles": True,
    # The hash of `starts` uses each value twice in a row. Left to itself the compiler walks every path through
    # such a chain, which takes minutes; told to name results early, it fuses them again and is done in seconds.
    "options": {"realize_opcount_threshold": 4},
}


class Row:
    """The row of the rule book: each value a tensor [N], meters a list of such."""

    def __init__(self, values: Tensors) -> None:
        self.meters = list(values["meters"].unbind(0))
        self.here, self.cell = values["here"], values["cell"]
        for name in FIELDS:
            setattr(self, name, values[name])

    def values(self, like: Tensors) -> Tensors:
        """Back to tensors, in the types of `like`."""
        out = {name: getattr(self, name).to(like[name].dtype) for name in FIELDS}
        return out | {"meters": torch.stack(self.meters)}


def choose(chosen: Tensor, yes: Tensors, no: Tensors) -> Tensors:
    """`yes` in the chosen rows, else `no`; rows lie last in meters and first elsewhere."""
    out: Tensors = {}
    for name in no:
        rows = chosen.unsqueeze(1) if no[name].ndim == 2 and name != "meters" else chosen
        out[name] = torch.where(rows, yes[name], no[name])
    return out


class TensorEngine:
    """A town of N rows on any torch device. Each step makes new tensors; nothing is written in place."""

    def __init__(
        self,
        world: World,
        rows: int,
        *,
        autoreset: bool = True,
        device: str = "cpu",
        compiled: bool = False,
        starts: StartsSpec | None = None,
    ) -> None:
        self.name = "compiled" if compiled else "torch"
        self.world, self.rows, self.autoreset, self.device = world, rows, autoreset, device
        self._w = tensor_tables(world.tables, device)
        self._starts = unrolled(start_table(world, starts).tolist())
        self._town: Any = torch.arange(rows, device=device) if world.tables.shuffled else 0
        self._key = torch.zeros((), dtype=torch.int64, device=device)
        self._mix = torch.ones((rows, len(world.rewards)), device=device)
        self.reward = torch.zeros(rows, device=device)
        self.components = torch.zeros((rows, len(world.rewards)), device=device)
        self.terminated = torch.zeros(rows, dtype=torch.bool, device=device)
        self.truncated = torch.zeros(rows, dtype=torch.bool, device=device)
        self._state: Tensors = {}
        self._final: Tensors = {}
        self._advance = self._step
        if compiled:
            self._advance = torch.compile(self._step, **COMPILER)
        self.used = np.zeros(0, np.int64)
        self.restore(fresh(world, rows))
        self._final = dict(self._state)

    def reset(self, key: int) -> None:
        """Begin episode 0 of every row in the random stream `key`."""
        self._key.fill_(key)
        self._state["episode"] = torch.zeros_like(self._state["episode"])
        self._begin_chosen(torch.ones(self.rows, dtype=torch.bool, device=self.device))

    def reset_rows(self, rows: Any) -> None:
        """Begin the next episode of the chosen rows."""
        chosen = torch.as_tensor(rows, device=self.device)
        self._state["episode"] = self._state["episode"] + chosen.to(torch.int32)
        self._begin_chosen(chosen)

    def _begin_chosen(self, chosen: Tensor) -> None:
        self._state = choose(chosen, self._begin(self._state), self._state)
        alive = chosen.logical_not()
        self.reward, self.components = self.reward * alive, self.components * alive.unsqueeze(1)
        self.terminated, self.truncated = self.terminated & alive, self.truncated & alive
        self._look()

    def _begin(self, values: Tensors) -> Tensors:
        """11. The first moment of every row's episode, with a new layout where the world shuffles."""
        s = Row(values)
        begin(s, self._key, self._w)
        if self._starts[SHARE][0] > 0:
            explore(s, self._key, self._starts)
        layout = self._shuffled(s) if self._w.shuffled else {}
        s.here = self._kind_at(layout)[self._town, s.cell]
        return s.values(values) | layout

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
        self, values: Tensors, mix: Tensor, actions: Tensor, terminated: Tensor, truncated: Tensor
    ) -> tuple[Tensors, Tensors, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The whole step of all rows: (state, last state, obs, mask, reward, components, terminated, truncated)."""
        w, town, s = self._w, self._town, Row(values)
        kind_at, cell_of = self._kind_at(values), values["cell_of"] if w.shuffled else w.cell_of
        components = torch.zeros_like(mix)
        reward, dead, late = live(s, actions, kind_at, cell_of, town, mix, components, EVERY, w)
        last = values | s.values(values)
        if self.autoreset:
            over = dead | late
            start = self._begin(last | {"episode": last["episode"] + 1})
            after = choose(over, start, last)
        else:
            ended = terminated | truncated
            last = after = choose(ended, values, last)
            reward, components = reward * ended.logical_not(), components * ended.logical_not().unsqueeze(1)
            dead, late = torch.where(ended, terminated, dead), torch.where(ended, truncated, late)
        obs, mask = observe(Row(after), self._kind_at(after), town, self.world, w)
        return after, last, obs, mask, reward, components, dead, late

    def step(self, actions: Any) -> None:
        """One step of every row."""
        actions = torch.as_tensor(actions, device=self.device)
        check_actions(actions, self.rows)
        actions = actions.to(torch.int64)
        if self.device == "cpu" and not bool(((actions >= 0) & (actions < len(self.world.actions))).all()):
            raise TownletError("some action does not exist", f"give whole numbers from 0 to {self._w.wait}")
        if len(self.used):
            self._foretell(actions)
        after, last, *out = self._advance(self._state, self._mix, actions, self.terminated, self.truncated)
        self._state, self._final = after, last
        self.obs, self.mask, self.reward, self.components, self.terminated, self.truncated = out

    def watch(self, rows: int) -> None:
        """From now on every step writes into `used` what the first rows really used."""
        self.used = nothing_used(self.world, max(rows, len(self.used)))

    def _foretell(self, actions: Tensor) -> None:
        """Write into `used` what its rows will use by these actions; an ended row that stays so uses nothing."""
        rows = len(self.used)
        s = Row({name: v[:, :rows] if name == "meters" else v[:rows] for name, v in self._state.items()})
        town = self._town[:rows] if self._w.shuffled else 0
        told = foretell(s, actions[:rows], self._kind_at(self._state), town, self._w)
        if not self.autoreset:
            told = torch.where((self.terminated | self.truncated)[:rows], 2 * self._w.none, told)
        self.used[:] = told.cpu().numpy()

    def _look(self) -> None:
        self.obs, self.mask = observe(Row(self._state), self._kind_at(self._state), self._town, self.world, self._w)

    def final(self, rows: Any = None) -> tuple[Tensor, Tensor]:
        """Observation and mask, before their reset, of rows that ended in the last step."""
        if rows is None:
            rows = torch.nonzero(self.terminated | self.truncated).squeeze(1)
        rows = torch.as_tensor(rows, device=self.device).to(torch.int64)
        ended = {name: v[:, rows] if name == "meters" else v[rows] for name, v in self._final.items()}
        town = torch.arange(len(rows), device=self.device) if self._w.shuffled else 0
        return observe(Row(ended), self._kind_at(ended), town, self.world, self._w)

    def final_meters(self, rows: Any) -> NDArray[np.float32]:
        """The meters, before their reset, of rows that ended in the last step [k, M]; a copy."""
        rows = torch.as_tensor(rows, device=self.device).to(torch.int64)
        meters: NDArray[np.float32] = self._final["meters"][:, rows].T.contiguous().cpu().numpy()
        return meters

    def final_state(self, rows: Any, *names: str) -> State:
        """State fields and `cell_of`, before their reset, of rows that ended in the last step [k, …]; copies."""
        index = torch.as_tensor(rows, device=self.device).to(torch.int64)
        found: State = {n: self._final[n][index].cpu().numpy() for n in names if n not in ("meters", "cell_of")}
        if "meters" in names:
            found["meters"] = self.final_meters(rows)
        if "cell_of" in names:
            kind_at = self._kind_at(self._final)[index if self._w.shuffled else index * 0]
            found["cell_of"] = places_of(kind_at.cpu().numpy(), self.world)
        return found

    def peek(self, *names: str) -> State:
        """The state as NumPy arrays [N, ...], copies; only the named fields where names are given."""
        shared = {"kind_at": self._w.kind_at, "cell_of": self._w.cell_of, "reward_mix": self._mix}
        fields = shared | self._state
        out = {name: fields[name].cpu().numpy() for name in names or fields}
        if "meters" in out:
            out["meters"] = np.ascontiguousarray(out["meters"].T)
        return out

    def records(self, rows: int) -> NDArray[np.void]:
        """The first rows as records, copies."""
        found = {name: self._state[name][:rows].cpu().numpy() for name in FIELDS}
        return records(found | {"meters": self._state["meters"][:, :rows].cpu().numpy().T})

    def state(self) -> State:
        """A copy of everything that decides what happens next."""
        ends = {"terminated": self.terminated, "truncated": self.truncated, "key": self._key}
        more: State = {name: values.cpu().numpy() for name, values in ends.items()}
        return {name: values.copy() for name, values in (self.peek() | more).items()}

    def restore(self, state: State) -> None:
        """Take over the given fields, and show what follows from them."""
        check_state(self.world, self.rows, state)
        for name, values in state.items():
            given = torch.from_numpy(np.array(values)).to(self.device)
            if given.is_floating_point():
                given = given.to(torch.float32)
            if name == "meters":
                self._state[name] = given.T.contiguous()
            elif name == "reward_mix":
                self._mix = given
            elif name == "key":
                self._key.copy_(given)
            elif name in ("terminated", "truncated"):
                setattr(self, name, given)
            elif name in FIELDS:
                self._state[name] = given if given.is_floating_point() else given.to(torch.int32)
            elif self._w.shuffled:
                self._state[name] = given.to(torch.int32)
        if self.autoreset:  # what those rows saw last is not part of a state
            self.terminated, self.truncated = self.terminated & False, self.truncated & False
        self._state["here"] = self._kind_at(self._state)[self._town, self._state["cell"]]
        self._look()

    def set(self, settings: State, rows: Any = None) -> None:
        """Give some rows (all by default) other settings, one value for each of them."""
        chosen = torch.from_numpy(choose_rows(rows, self.rows)).to(self.device)
        check_settings(self.world, len(chosen), settings)
        for name, values in settings.items():
            now = self._mix if name == "reward_mix" else self._state[name]
            given = torch.from_numpy(np.array(values)).to(self.device, now.dtype)
            changed = now.index_put((chosen,), given)
            if name == "reward_mix":
                self._mix = changed
            else:
                self._state[name] = changed
        if "active" not in settings:
            return  # nothing that is seen or allowed follows from the others
        if self._starts[SHARE][0] > 0:  # a life that has not begun yet begins with the meters that are now in play
            young = torch.zeros_like(self.terminated).index_fill(0, chosen, True) & (self._state["age"] == 0)
            self._state = choose(young, self._begin(self._state), self._state)
        self._look()

    def scene(self, row: int, action: int | None = None) -> Scene:
        """One row as people see it."""
        return scene_of(self, row, action)

    def close(self) -> None:
        """Nothing to give back that Python does not."""
