"""Versions of the network: what serves, what served, and what could.

A version is kept as a checkpoint whose number is its own. Beside them lies `serving.jsonl`: one line for every change
of what serves, with all that holds after it. If that file cannot be trusted, only the gate decides.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from townlet.agents.agent import no_interrupt
from townlet.decide.estimate import Estimate
from townlet.decide.storage.serving_log import SERVING_LOG, ChangeKind, ServingChange, ServingLog, serving_summary
from townlet.errors import SourceLocation, TownletError, did_you_mean
from townlet.interfaces.state import State, get_part
from townlet.nets.optimizers import restore_weights, weights
from townlet.runs import checkpoint, disk

MAX_REASON: Final = 500  # letters of a reason
MAX_TRAIL: Final = 100  # versions that one can go back through, where they are kept


@dataclass(frozen=True, eq=False)
class NetworkVersion:
    """A version that nobody changes any more: its network is in eval mode and without gradients."""

    version: int  # 1, 2, …
    step: int  # of the trainer
    digest: str
    network: nn.Module
    parent: int | None  # the version that it was trained from

    @property
    def finite(self) -> bool:
        """Whether every weight is a number."""
        return all(bool(weight.isfinite().all()) for weight in weights(self.network).values())


def weights_digest(state: Mapping[str, Tensor]) -> str:
    """sha256 of weights: names, types, shapes and bytes, in the order of the names."""
    found = sha256()
    for name in sorted(state):
        tensor = state[name].detach().to("cpu").contiguous()
        kind = str(tensor.dtype).removeprefix("torch.")
        found.update(json.dumps([name, kind, list(tensor.shape)]).encode())  # says how many bytes follow
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


class VersionStore:
    """All versions in a folder, for the one who writes there.

    `serving` is replaced as a whole by one assignment. A reader takes it once and then uses nothing but what it took:
    so it sees one version without a lock, whatever is published meanwhile.
    """

    def __init__(
        self, folder: Path, make: Callable[[], nn.Module], keep: int = 20, clock: Callable[[], float] = time.time,
        record: Callable[[], int] = lambda: 0, log_id: str = "",
    ) -> None:  # fmt: skip
        self.folder, self._keep, self._clock = folder, max(keep, 1), clock
        self._log_id = log_id  # of the log that versions must belong to; empty: of any log
        self._empty = make()  # to be copied: first weights, which nobody needs here, take long to draw
        self.lock = threading.RLock()  # for those who change something; readers need none
        self._known: dict[int, NetworkVersion] = {}  # at hand: what serves, what served before, the newest
        self._facts: dict[int, dict[str, Any]] = {}  # what the manifests of whole versions say; replaced, never changed
        self.damaged: dict[int, TownletError] = {}  # versions that were found to be so; replaced, never changed
        self.serving: NetworkVersion | None = None  # None until one was promoted
        self._record = record  # the last record of the log that is on the disk
        self.on_change: Callable[[ServingChange], object] = lambda change: (
            None
        )  # called with every change of what serves
        try:
            disk.make_folder(folder)
            checkpoint.remove_leftovers(folder)
        except OSError as error:
            raise disk.describe_error(error, f"cannot open the versions in {folder}") from error
        self._notes = ServingLog(folder / SERVING_LOG)
        self._newest = max((0, *self._numbers(), *(change.version for change in self._notes.changes)))
        self._reopen()

    @property
    def history(self) -> tuple[ServingChange, ...]:
        """The last changes, oldest first."""
        return self._notes.changes

    @property
    def pinned(self) -> int | None:
        """The version that an operator holds in place."""
        return self._notes.last.pinned if self._notes.last else None

    @property
    def instead_of(self) -> int | None:
        """The version in whose place another is held, since it is not whole; until an operator pins or unpins."""
        return self._notes.last.instead_of if self._notes.last else None

    @property
    def gate_only(self) -> bool:
        """Whether the gate decides alone: an operator switched it on, or the serving record cannot be trusted."""
        return bool(self.fault) or (self._notes.last.gate_only if self._notes.last else False)

    @property
    def fault(self) -> str:
        """Why the serving record cannot be trusted; empty if it can."""
        return self._notes.fault

    @property
    def change_number(self) -> int:
        """The number of the last change of what serves."""
        return self._notes.number

    def cross_check(self, source: str, number: int, gate_only: bool) -> None:
        """Distrust the serving record if it lacks a change that another source knows, or contradicts it."""
        found = {change.number: change.gate_only for change in self._notes.changes}
        if number > self._notes.number:
            missing = f"{SERVING_LOG} ends with change {self._notes.number}, but {source} refers to change {number}"
            self._notes.distrust(missing, number)
        elif number in found and found[number] != gate_only:
            self._notes.distrust(
                f"{SERVING_LOG} and {source} disagree about the kill switch at change {number}", number
            )

    @property
    def previous(self) -> NetworkVersion | None:
        """The version that served before this one, where it is still kept."""
        last = self._notes.last
        found = last.trail[-2] if last and len(last.trail) > 1 else None
        return self._snapshot(found) if found in self._facts else None

    def step_of(self, version: int | None) -> int:
        """The trainer's step of a version; 0 for what is not kept any more."""
        return int(self._facts.get(version or 0, {}).get("step", 0))

    def overview(self) -> dict[str, Any]:
        """All of it for people, as JSON; reads no disk and waits for nobody."""
        serving = self.serving
        versions = {"versions": [facts for _, facts in sorted(self._facts.items())]}
        damaged = {"damaged": {str(version): str(error) for version, error in sorted(self.damaged.items())}}
        return (
            serving_summary(self.history, self.fault)
            | versions
            | damaged
            | {"serving": serving.version if serving else None}
        )

    def list_versions(self) -> list[int]:
        """The versions that are kept and not known to be damaged, oldest first."""
        return [version for version in self._numbers() if version not in self.damaged]

    def publish(
        self, step: int, network_state: Mapping[str, Tensor], trainer_state: State, info: Mapping[str, Any],
        parent: int | None = None, rest: Callable[[], object] = no_interrupt,
    ) -> NetworkVersion:  # fmt: skip
        """Keep weights as the next version, with what the trainer needs to go on; it does not serve yet.

        `info` says more of it (hash of the config, number in the log). `parent` is the version before where none is
        named. `rest` is called between its parts.
        """
        with self.lock:
            # A version that could not be acknowledged may have stayed on the disk: its number is not used again.
            version, network = max([self._newest, *self._numbers()]) + 1, self._network(network_state)
            rest()
            origin = parent if parent is not None else self._newest or None
            own, digest = weights(network), weights_digest(weights(network))
            facts = {"version": version, "parent": origin, "step": step, "digest": digest, "time": self._clock()}
            state = {"network": own, "trainer": trainer_state}
            rest()
            written = checkpoint.save(self.folder, checkpoint.folder_name(version), state, {**info, **facts})
            self._newest, self._facts = version, {**self._facts, version: written.info}
            snapshot = self._known[version] = NetworkVersion(version, step, digest, network, origin)
            rest()
            self._prune()
            return snapshot

    def open(self, version: int) -> tuple[dict[str, Tensor], State, dict[str, Any]]:
        """The weights, the trainer's state and the info of a version, after every byte was checked."""
        path = self.folder / checkpoint.folder_name(version)
        if not path.is_dir():
            known = [str(number) for number in self.list_versions()]
            raise TownletError(
                f"there is no version {version}", did_you_mean(str(version), known), SourceLocation(str(path))
            )
        state, info = checkpoint.load(path)
        self._require_own(version, info)
        network, trainer = get_part(state, "network", "version"), get_part(state, "trainer", "version")
        if weights_digest(network) != info.get("digest"):
            what = f"the weights of version {version} are not those that were published"
            raise TownletError(what, "use another version", SourceLocation(str(path)))
        return network, trainer, info

    def _require_own(self, version: int, info: Mapping[str, Any]) -> None:
        """Refuse a version that was renamed or copied from another service, although its checksums match."""
        where = SourceLocation(str(self.folder / checkpoint.folder_name(version)))
        if (own := info.get("version")) != version:
            raise TownletError(f"this is version {str(own)[:20]} under the name of {version}", "rename it back", where)
        if self._log_id and info.get("log", self._log_id) != self._log_id:
            raise TownletError(f"version {version} belongs to another service", "restore it from a backup", where)

    def promote(self, version: int, reason: str, estimate: Estimate | None = None) -> ServingChange:
        """Let a version serve. While another is pinned this is only noted."""
        with self.lock:
            snapshot, before = self._snapshot(version), self._notes.changes
            change = self._changed("promote", version, reason, estimate, self.pinned, noted=self.pinned is not None)
            try:
                change = self._notes.add(change)  # first: after a crash nothing serves that was not written down
            except TownletError:
                self._notes.changes = before
                raise
            self._serve(snapshot, change)
            return self._tell(change)

    def roll_back(self, reason: str, estimate: Estimate | None = None, to: int | None = None) -> ServingChange:
        """Let a version serve that served before, the last one or `to`. While one is pinned this is only noted."""
        with self.lock:
            snapshot = next(self._sound(self._trail()[-2::-1]), None) if to is None else self._snapshot(to)
            if snapshot is None:
                raise TownletError("there is no version to go back to", "promote another one, or let the gate decide")
            noted = self.pinned is not None
            change = self._changed("roll_back", snapshot.version, reason, estimate, self.pinned, noted=noted)
            self._serve(snapshot, change)  # first: what is bad must go even where the disk is full
            return self._hold(change)

    def pin(self, version: int, reason: str = "pinned by hand") -> ServingChange:
        """Let a version serve until `unpin`, whatever is promoted or rolled back."""
        with self.lock:
            snapshot = self._snapshot(version)
            change = self._changed("pin", version, reason, held=version)
            self._serve(snapshot, change)
            return self._hold(change)

    def unpin(self, reason: str = "unpinned by hand") -> ServingChange | None:
        """Go on: the same version serves until the next promotion. None where nothing was pinned."""
        with self.lock:
            if self.pinned is None:
                return None
            return self._hold(self._changed("unpin", self.pinned, reason))

    def set_gate_only(self, gate_only: bool, reason: str) -> ServingChange | None:
        """Let the gate decide alone, or not any more; None where that is so already."""
        with self.lock:
            if gate_only == self.gate_only and not self.fault:
                return None
            kind: ChangeKind = "gate_only" if gate_only else "gate_and_network"
            serving = self.serving.version if self.serving else 0
            return self._hold(self._changed(kind, serving, reason, held=self.pinned, gate_only=gate_only))

    def note(self, version: int, reason: str, estimate: Estimate | None = None) -> ServingChange:
        """Keep what was said of a version that does not serve: that it was held or refused."""
        with self.lock:
            return self._notes.add(self._changed("note", version, reason, estimate, self.pinned, noted=True))

    def _hold(self, change: ServingChange) -> ServingChange:
        """Store a change that has taken effect; if that fails, the log and its control data may still have it."""
        try:
            change = self._notes.hold(change)
        except TownletError:
            self._tell(change.model_copy(update={"number": self._notes.number}))
            raise
        return self._tell(change)

    def _tell(self, change: ServingChange) -> ServingChange:
        if change.served:
            self.on_change(change)
        return change

    def _serve(self, snapshot: NetworkVersion, change: ServingChange) -> None:
        if change.served:
            self.serving = snapshot
        self._prune()

    def _changed(
        self, kind: ChangeKind, version: int, reason: str, estimate: Estimate | None = None, held: int | None = None,
        *, noted: bool = False, gate_only: bool | None = None,
    ) -> ServingChange:  # fmt: skip
        """What holds after a change, with `held` pinned; nothing is done yet."""
        trail = self._trail()
        if kind == "roll_back" and not noted:
            trail = trail[: trail.index(version) + 1] if version in trail else (version,)
        elif not noted and gate_only is None:
            trail = (*(one for one in trail if one != version), version)[-MAX_TRAIL:]
        return ServingChange(
            kind=kind, version=version, reason=reason[:MAX_REASON], at=float(self._clock()), served=not noted,
            estimate=estimate, serving=trail[-1] if trail else None, pinned=held, trail=trail,
            gate_only=self.gate_only if gate_only is None else gate_only,
            instead_of=self.instead_of if held is not None and kind != "pin" else None,
            record=self._record(), fault=self.fault if gate_only is None else "",
        )  # fmt: skip

    def _trail(self) -> tuple[int, ...]:
        return self._notes.last.trail if self._notes.last else ()

    def _reopen(self) -> None:
        """Find out what is damaged, and serve what served; where that is damaged, the nearest before it."""
        for version in self._numbers():
            try:
                info = checkpoint.verify(self.folder / checkpoint.folder_name(version)).info
                self._require_own(version, info)
                self._facts[version] = info
            except TownletError as error:
                self.damaged[version] = error
        last = self._notes.last
        if last is None or last.serving is None:
            return
        older = [version for version in reversed(self.list_versions()) if version < last.serving]
        self.serving = next(self._sound(dict.fromkeys([*reversed(last.trail), *older])), None)
        if self.serving is not None and self.serving.version != last.serving:
            self._replace(last, self.serving.version)

    def _replace(self, last: ServingChange, version: int) -> None:
        """Another version serves after a start; where one was pinned this one is held, as somebody wanted no change."""
        why = str(self.damaged.get(last.serving or 0, f"version {last.serving} is not there"))
        held = None if last.pinned is None else version
        reason = f"at a start: {why}" if held is None else f"at a start, and held, as what it replaces was: {why}"
        change = self._changed("roll_back", version, reason, held=held)
        wanted = None if held is None else last.instead_of or last.pinned
        with suppress(TownletError):  # on a full disk one can still decide
            self._notes.add(change.model_copy(update={"instead_of": wanted}))

    def _sound(self, versions: Sequence[int] | Mapping[int, Any]) -> Iterator[NetworkVersion]:
        """Those of these versions that are there and whole; one of another network is the user's mistake."""
        for version in versions:
            if version in self._known:
                yield self._known[version]
                continue
            try:
                found = self.open(version)
            except TownletError as error:
                if version in self._numbers():
                    self.damaged = {version: error, **self.damaged}
            else:
                yield self._loaded(version, *found)

    def _snapshot(self, version: int) -> NetworkVersion:
        return self._known[version] if version in self._known else self._loaded(version, *self.open(version))

    def _loaded(
        self, version: int, state: Mapping[str, Tensor], trainer: State, info: Mapping[str, Any]
    ) -> NetworkVersion:
        del trainer
        network = self._network(state)
        self._known[version] = NetworkVersion(version, int(info["step"]), info["digest"], network, info["parent"])
        return self._known[version]

    def _network(self, state: Mapping[str, Tensor]) -> nn.Module:
        """A network of its own with copies of these weights, which must be all and fit."""
        network = deepcopy(self._empty)
        restore_weights(network, dict(state))
        return network.eval().requires_grad_(False)

    def _numbers(self) -> list[int]:
        return [checkpoint.step_and_serial(path)[0] for path in checkpoint.paths(self.folder)]

    def _prune(self) -> None:
        """Let go of all but what serves, what served before, what is pinned and the last few."""
        last = self._notes.last
        needed = {self._newest, *(last.trail[-2:] if last else ()), last.pinned if last else None}
        if self.serving:
            needed.add(self.serving.version)
        self._known = {version: one for version, one in self._known.items() if version in needed}
        leaving = [version for version in self.list_versions()[: -self._keep] if version not in needed]
        self._facts = {version: facts for version, facts in self._facts.items() if version not in leaving}
        with suppress(TownletError):  # what stays now goes next time; the next publication reports a failing disk
            checkpoint.remove(self.folder, [checkpoint.folder_name(version) for version in leaving])
