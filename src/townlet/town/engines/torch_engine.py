"""The torch engine: the state is tensors on any device, the full step one function that torch can compile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from townlet.cuda_graph import CudaGraph, compile_method
from townlet.errors import TownletError
from townlet.town import observe
from townlet.town import state as town_state
from townlet.town.engines import torch_state
from townlet.town.engines.torch_state import LAYOUT, TensorRow, Tensors, field_to_numpy, select_rows, write
from townlet.town.reset import randomize_start, reset_row, shuffle_layout
from townlet.town.rules import action_is_valid, predict_use
from townlet.town.state import FIELDS, FRACTION, StartsSpec, State
from townlet.town.step import step_row
from townlet.town.world.tables import World

ALL_ROWS = slice(None)


class TorchEngine:
    """N rows of one world on any torch device. Every step writes to the same tensors."""

    def __init__(
        self, world: World, rows: int, *, autoreset: bool = True, device: str = "cpu", compiles: bool = False,
        starts: StartsSpec | None = None,
    ) -> None:  # fmt: skip
        self.name = "compiled" if compiles else "torch"
        self.world, self.rows, self.autoreset, self.device = world, rows, autoreset, device
        self._w = torch_state.tensor_tables(world.tables, device)
        self._starts = torch_state.to_tuples(town_state.start_table(world, starts).tolist())
        self._layout_index: Any = torch.arange(rows, device=device) if world.tables.shuffled else 0
        self._meters = torch_state.meter_names(world)
        zeros = partial(torch.zeros, device=device)
        self._state = {name: zeros(rows, dtype=dtype) for name, dtype in torch_state.field_dtypes(world).items()}
        if world.tables.shuffled:
            shapes = {name: (rows, getattr(self._w, name).shape[1]) for name in LAYOUT}
            self._state |= {name: zeros(shapes[name], dtype=torch.int32) for name in LAYOUT}
        stepped = (*torch_state.STEP_FIELDS, *self._meters, *LAYOUT)
        self._final = {name: zeros(v.shape, dtype=v.dtype) for name, v in self._state.items() if name in stepped}
        self._truncated_state: Tensors = {}  # final state of each row's last truncated episode (`track_truncations`)
        self._key = zeros((), dtype=torch.int64)
        self._mix = torch.ones((rows, len(world.rewards)), device=device)
        self._actions = zeros(rows, dtype=torch.int64)
        self.obs, self.mask = zeros((rows, world.layout.size)), zeros((rows, len(world.actions)), dtype=torch.bool)
        self.reward, self.components = zeros(rows), zeros((rows, len(world.rewards)))
        self.terminated, self.truncated = zeros(rows, dtype=torch.bool), zeros(rows, dtype=torch.bool)
        self.used = np.zeros(0, np.int64)
        self._write_step = compile_method(self._step, device) if compiles else self._step
        self._advance: Callable[[], None] = self._step_state
        self._capture_next = compiles and device.startswith("cuda")
        self.restore(town_state.initial_state(world, rows))

    @property
    def _outputs(self) -> Tensors:
        names = ("obs", "mask", "reward", "components", "terminated", "truncated")
        return {name: getattr(self, name) for name in names}

    def reset(self, key: int) -> None:
        self._key.fill_(key)
        self._state["episode"].zero_()
        self._start_episodes(torch.ones(self.rows, dtype=torch.bool, device=self.device))

    def reset_rows(self, rows: Any) -> None:
        chosen = torch.as_tensor(rows, device=self.device)
        self._state["episode"] += chosen.to(torch.int32)
        self._start_episodes(chosen)

    def _start_episodes(self, chosen: Tensor) -> None:
        write(select_rows(chosen, self._first_states(self._state), self._state), self._state)
        for output in (self.reward, self.components, self.terminated, self.truncated):
            output[chosen] = 0
        self._refresh_obs()

    def _first_states(self, values: Tensors) -> Tensors:
        """11. The first state of every row's episode, with a new layout if the world shuffles."""
        s = TensorRow(values, self._meters)
        reset_row(s, self._key, self._w)
        if self._starts[FRACTION][0] > 0:
            randomize_start(s, self._key, self._starts)
        layout = self._shuffled_layout(s) if self._w.shuffled else {}
        s.here = self._kind_at(layout)[self._layout_index, s.cell]
        return values | s.values(values, self._meters) | layout

    def _kind_at(self, values: Tensors) -> Tensor:
        """The affordance at each cell [N, C + 1] if layouts are shuffled, else that of the fixed layout [1, C + 1]."""
        return values["kind_at"] if self._w.shuffled else self._w.kind_at

    def _shuffled_layout(self, s: TensorRow) -> Tensors:
        none, cells = self._w.n_affordances, self._w.next_cell.shape[1]
        places: list[Any] = [None] * none
        shuffle_layout(places, list(places), s, self._key, cells, self._w)
        cell_of = torch.stack(places, 1).to(torch.int32)
        kind_at = torch.full((self.rows, cells + 1), none, dtype=torch.int32, device=self.device)
        kind_at[:, cells] = none + 1
        kinds = torch.arange(none, dtype=torch.int32, device=self.device).expand(self.rows, -1)
        return {"kind_at": kind_at.scatter(1, cell_of.to(torch.int64), kinds), "cell_of": cell_of}

    def _step(
        self, values: Tensors, final: Tensors, truncated: Tensors, outputs: Tensors, mix: Tensor, actions: Tensor
    ) -> None:
        """Step all rows; writes the state `values`, the states at the end of episodes, and the outputs."""
        w, layout_index, s = self._w, self._layout_index, TensorRow(values, self._meters)
        kind_at, cell_of = self._kind_at(values), values["cell_of"] if w.shuffled else w.cell_of
        components = torch.zeros_like(mix)
        reward, dead, out_of_time = step_row(s, actions, kind_at, cell_of, layout_index, mix, components, ALL_ROWS, w)
        last = values | s.values(values, self._meters)
        if self.autoreset:
            ends = dead | out_of_time
            start = self._first_states(last | {"episode": last["episode"] + 1})
            after = select_rows(ends, start, last)
            # Select the old layout instead of copying it: a compiled graph would copy it after it was overwritten.
            last |= select_rows(ends, values, {name: final[name] for name in LAYOUT if name in final})
        else:
            had_ended = outputs["terminated"] | outputs["truncated"]
            last = after = select_rows(had_ended, values, last)
            reward, components = reward * had_ended.logical_not(), components * had_ended.logical_not().unsqueeze(1)
            dead = torch.where(had_ended, outputs["terminated"], dead)
            out_of_time = torch.where(had_ended, outputs["truncated"], out_of_time)
        obs, mask = self._observe(after, layout_index)
        write(select_rows(out_of_time, last, truncated), truncated)
        write({name: last[name] for name in final}, final)
        write({name: after[name] for name in values if name in final or name == "episode"}, values)
        results = {"reward": reward, "components": components, "terminated": dead, "truncated": out_of_time}
        write(results | {"obs": obs, "mask": mask}, outputs)

    def _observe(self, values: Tensors, layout_index: Any) -> tuple[Tensor, Tensor]:
        """12. Observation [k, D] and mask [k, K] of k rows; a class beyond the last one gives zeros."""
        w, kind_at, s = self._w, self._kind_at(values), TensorRow(values, self._meters)
        mask = [action_is_valid(s, action, kind_at, layout_index, w) for action in range(len(self.world.actions))]
        rows, s = len(s.cell), s.columns()
        column = layout_index.unsqueeze(1) if isinstance(layout_index, Tensor) else layout_index
        parts = []
        for block in self.world.layout:
            if block.name in observe.VALUES:
                entries = torch.arange(block.size, device=self.device)
                part = observe.VALUES[block.name](s, entries, kind_at, column, w)
            else:
                classes = torch.arange(block.shape[-1], device=self.device)
                entries = torch.arange(block.size // block.shape[-1], device=self.device)
                index = observe.ONE_HOT[block.name](s, entries, kind_at, column, w)
                part = (index.unsqueeze(-1) == classes).to(torch.float32).flatten(-2)
            parts.append(part.expand(rows, -1))
        return torch.cat(parts, 1), torch.stack(mask, 1)

    def _step_state(self) -> None:
        self._write_step(self._state, self._final, self._truncated_state, self._outputs, self._mix, self._actions)

    def track_truncations(self) -> None:
        """From now on keep the final state of each row's last truncated episode."""
        self._truncated_state = {name: values.clone() for name, values in self._final.items()}

    def step_in_place(self, actions: Tensor) -> None:
        """Step with valid actions [N] int64 on the device, without checks or synchronization."""
        self._actions.copy_(actions)
        self._step_state()

    def truncated_obs(self) -> Tensor:
        """The final observation of each row's last truncated episode [N, D]; undefined if there was none."""
        return self._observe(self._state | self._truncated_state, self._layout_index)[0]

    def written_tensors(self) -> list[Tensor]:
        """All tensors that a step writes."""
        return [*self._state.values(), *self._final.values(), *self._truncated_state.values(), *self._outputs.values()]

    @property
    def last_meters(self) -> Tensor:
        """The meters of all rows after the last step, before any reset [N, M]."""
        return torch.stack([self._final[name] for name in self._meters], 1)

    def step(self, actions: Any, obs_out: NDArray[np.float32] | None = None, *, reset_ended: bool = False) -> None:
        actions = torch.as_tensor(actions, device=self.device)
        town_state.check_actions(actions, self.rows)
        if self.device == "cpu" and not bool(((actions >= 0) & (actions < len(self.world.actions))).all()):
            raise TownletError("an action is out of range", f"give integers from 0 to {self._w.wait}")
        self._actions.copy_(actions)
        if len(self.used):
            self._predict_use()
        if self._capture_next:
            self._capture_next = False
            self._advance = CudaGraph(self._step_state, self.written_tensors())
        ended = (self.terminated | self.truncated) if reset_ended and not self.autoreset else None
        self._advance()
        if ended is not None:
            self.reset_rows(ended)
        if obs_out is not None:
            obs_out[...] = self.obs.cpu().numpy()

    def final_causes(self, rows: Any) -> NDArray[np.int64]:
        return town_state.cause_codes(self.world, self.final_state(rows, "meters")["meters"])

    def track_usage(self, n_rows: int) -> None:
        self.used = np.full(max(n_rows, len(self.used)), 2 * self._w.n_affordances, np.int64)

    def _predict_use(self) -> None:
        """Write to `used` what its rows will use with these actions; an ended row without autoreset uses nothing."""
        rows = len(self.used)
        s = TensorRow({name: values[:rows] for name, values in self._state.items()}, self._meters)
        layout_index = self._layout_index[:rows] if self._w.shuffled else 0
        used = predict_use(s, self._actions[:rows], self._kind_at(self._state), layout_index, self._w)
        if not self.autoreset:
            used = torch.where((self.terminated | self.truncated)[:rows], 2 * self._w.n_affordances, used)
        self.used[:] = used.cpu().numpy()

    def _refresh_obs(self) -> None:
        obs, mask = self._observe(self._state, self._layout_index)
        write({"obs": obs, "mask": mask}, self._outputs)

    def _final_fields(self, rows: Any) -> Tensors:
        """All fields of rows whose episode ended in the last step, before the reset."""
        index = torch.as_tensor(rows, device=self.device).to(torch.int64)
        return {name: values[index] for name, values in (self._state | self._final).items()}

    def final_obs(self, rows: Any = None) -> tuple[Tensor, Tensor]:
        if rows is None:
            rows = torch.nonzero(self.terminated | self.truncated).squeeze(1)
        layout_index = torch.arange(len(rows), device=self.device) if self._w.shuffled else 0
        return self._observe(self._final_fields(rows), layout_index)

    def _stacked_meters(self, values: Tensors) -> NDArray[np.float32]:
        meters: NDArray[np.float32] = torch.stack([values[name] for name in self._meters], 1).cpu().numpy()
        return meters

    def final_state(self, rows: Any, *names: str) -> State:
        ended = self._final_fields(rows)
        ended["episode"] = ended["episode"] - int(self.autoreset)  # autoreset has started the next one
        fields: State = {name: field_to_numpy(name, ended[name]) for name in names if name in FIELDS}
        if "meters" in names:
            fields["meters"] = self._stacked_meters(ended)
        if "cell_of" in names:
            kind_at = ended["kind_at"] if self._w.shuffled else self._w.kind_at.expand(len(rows), -1)
            fields["cell_of"] = town_state.cells_of_affordances(kind_at.cpu().numpy(), self.world)
        return fields

    def peek(self, *names: str) -> State:
        shared = {"kind_at": self._w.kind_at, "cell_of": self._w.cell_of, "reward_mix": self._mix}
        fields = {name: values for name, values in (shared | self._state).items() if name not in self._meters}
        return {
            name: self._stacked_meters(self._state) if name == "meters" else field_to_numpy(name, fields[name])
            for name in names or ("meters", *fields)
        }

    def records(self, n_rows: int) -> NDArray[np.void]:
        first = {name: values[:n_rows] for name, values in self._state.items()}
        records = np.zeros(n_rows, town_state.record_dtype(len(self._meters)))
        records["meters"] = self._stacked_meters(first)
        for name in FIELDS:
            records[name] = first[name].cpu().numpy()
        return records

    def state(self) -> State:
        ends = {"terminated": self.terminated, "truncated": self.truncated, "key": self._key}
        return self.peek() | {name: field_to_numpy(name, values) for name, values in ends.items()}

    def restore(self, state: State) -> None:
        town_state.check_state(self.world, self.rows, state)
        fields = self._state | {"terminated": self.terminated, "truncated": self.truncated}
        fields |= {"reward_mix": self._mix, "key": self._key}
        for name, values in state.items():
            given = torch.from_numpy(np.array(values)).to(self.device)
            if name == "meters":
                write(dict(zip(self._meters, given.unbind(1), strict=True)), self._state)
            elif name in fields:  # a fixed layout belongs to the world
                fields[name].copy_(given)
        if self.autoreset:  # final observations are not part of a state
            self.terminated.zero_()
            self.truncated.zero_()
        here = self._kind_at(self._state)[self._layout_index, self._state["cell"].to(torch.int32)]
        self._state["here"].copy_(here)
        write({name: self._state[name] for name in self._final}, self._final)
        self._refresh_obs()

    def set(self, settings: State, rows: Any = None) -> None:
        chosen = torch.from_numpy(town_state.row_indices(rows, self.rows)).to(self.device)
        town_state.check_settings(self.world, len(chosen), settings)
        for name, values in settings.items():
            current = self._mix if name == "reward_mix" else self._state[name]
            current[chosen] = torch.from_numpy(np.array(values)).to(self.device, current.dtype)
        if "active" not in settings:
            return  # observation and mask do not depend on the others
        if self._starts[FRACTION][0] > 0:  # an episode that has not stepped yet restarts with the meters now active
            unstepped = torch.zeros_like(self.terminated).index_fill(0, chosen, True) & (self._state["age"] == 0)
            write(select_rows(unstepped, self._first_states(self._state), self._state), self._state)
        self._refresh_obs()

    def close(self) -> None:
        """Release nothing: tensors are freed with the engine."""
