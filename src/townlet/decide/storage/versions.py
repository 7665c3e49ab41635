"""Versions of the network: storage, promotion, rollback, pinning, and gate-only mode.

Beside the versions, a history has one entry for every change of the serving version, with the complete state after it.
If the history cannot be trusted, only the gate decides.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any, Final

import torch
from torch import Tensor, nn

from townlet.agents.agent import no_interrupt
from townlet.decide.estimate import Estimate
from townlet.decide.storage.archive import VersionArchive
from townlet.decide.storage.availability import Retry, StorageUnavailable
from townlet.decide.storage.serving_log import SERVING_LOG, ChangeKind, ServingChange, serving_summary
from townlet.errors import TownletError, did_you_mean
from townlet.interfaces.state import State, get_part
from townlet.nets.optimizers import restore_weights, weights

MAX_REASON: Final = 500  # characters
MAX_TRAIL: Final = 100  # earlier versions that a rollback can reach, as long as they are kept


@dataclass(frozen=True, eq=False)
class NetworkVersion:
    """An immutable version: its network is in eval mode and has no gradients."""

    version: int  # 1, 2, …
    step: int  # training step at which it was published
    digest: str
    network: nn.Module
    parent: int | None  # the version it was trained from

    @property
    def finite(self) -> bool:
        return all(bool(weight.isfinite().all()) for weight in weights(self.network).values())


def weights_digest(state: Mapping[str, Tensor]) -> str:
    """sha256 of weights: names, types, shapes and bytes, in the order of the names."""
    digest = sha256()
    for name in sorted(state):
        tensor = state[name].detach().to("cpu").contiguous()
        dtype = str(tensor.dtype).removeprefix("torch.")
        digest.update(json.dumps([name, dtype, list(tensor.shape)]).encode())  # implies the number of bytes that follow
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


class VersionStore:
    """All versions of a service.

    `serving` is replaced by a single assignment. A reader reads it once and uses only that object, so it sees one
    consistent version without a lock, whatever is published in the meantime.
    """

    def __init__(
        self, archive: VersionArchive, template: nn.Module, keep: int = 20, clock: Callable[[], float] = time.time,
        synced_record: Callable[[], int] = lambda: 0, log_id: str = "",
    ) -> None:  # fmt: skip
        self._archive, self._keep, self._clock = archive, max(keep, 1), clock
        self._log_id = log_id  # the log that versions must belong to; empty: any log
        self._template = template  # copied for each version, since drawing initial weights is slow
        self.lock = threading.RLock()  # for writers; readers need none
        self._cache: dict[int, NetworkVersion] = {}  # the serving version, the one before it, and the newest
        self._info: dict[int, dict[str, Any]] = {}  # manifests of valid versions; replaced, never modified
        self.damaged: dict[int, TownletError] = {}  # damaged versions; replaced, never modified
        self.serving: NetworkVersion | None = None  # None until one is promoted
        self._synced_record = synced_record  # returns the last synced record of the log
        self.on_change: Callable[[ServingChange], object] = lambda change: None  # called after changes that took effect
        self._log = archive.history
        self._retry = Retry()
        self._newest = max((0, *archive.numbers(), *(change.version for change in self._log.changes)))
        self._reopen()

    @property
    def history(self) -> tuple[ServingChange, ...]:
        return self._log.changes

    @property
    def pinned(self) -> int | None:
        """The version that an operator has pinned."""
        return self._log.last.pinned

    @property
    def replaced_pin(self) -> int | None:
        """The damaged version that was pinned and has been replaced, until an operator pins or unpins."""
        return self._log.last.replaced_pin

    @property
    def gate_only(self) -> bool:
        """Whether the gate decides alone: an operator switched it on, or the serving log cannot be trusted."""
        return bool(self.fault) or self._log.last.gate_only

    @property
    def fault(self) -> str:
        """Why the serving log cannot be trusted; empty if it can be."""
        return self._log.fault

    @property
    def change_number(self) -> int:
        return self._log.number

    def cross_check(self, source: str, number: int, gate_only: bool) -> None:
        """Distrust the serving log if it lacks a change that another source refers to, or contradicts that source."""
        by_number = {change.number: change.gate_only for change in self._log.changes}
        if number > self._log.number:
            what = f"{SERVING_LOG} ends with change {self._log.number}, but {source} refers to change {number}"
            self._log.distrust(what, number)
        elif by_number.get(number, gate_only) != gate_only:
            what = f"{SERVING_LOG} and {source} disagree about gate-only mode at change {number}"
            self._log.distrust(what, number)

    def refresh(self) -> None:
        """Adopt the versions and changes that other processes have stored."""
        with self.lock:
            self._log.refresh()
            stored = set(self._archive.numbers())
            known = {version: info for version, info in self._info.items() if version in stored}
            new = sorted(stored - self._info.keys() - self.damaged.keys())
            self._info = known | {version: self._archive.verify(version) for version in new}
            self._newest = max([self._newest, *stored])
            serving = self._log.last.serving
            if serving is not None and (self.serving is None or self.serving.version != serving):
                self.serving = self._load(serving)

    @property
    def previous(self) -> NetworkVersion | None:
        """The version that served before the current one, if it is still kept."""
        trail = self._log.last.trail
        version = trail[-2] if len(trail) > 1 else None
        return self._load(version) if version in self._info else None

    def step_of(self, version: int | None) -> int:
        """The trainer's step of a version; 0 if it is no longer kept."""
        return int(self._info.get(version or 0, {}).get("step", 0))

    def published_at(self, version: int) -> float | None:
        """When a version was published, in seconds since 1970; None if it is no longer kept."""
        at = self._info.get(version, {}).get("time")
        return None if at is None else float(at)

    def overview(self) -> dict[str, Any]:
        """The state and all versions as JSON; neither reads the disk nor blocks."""
        serving = self.serving
        return serving_summary(self.history, self.fault) | {
            "versions": [info for _, info in sorted(self._info.items())],
            "damaged": {str(version): str(error) for version, error in sorted(self.damaged.items())},
            "serving": serving.version if serving else None,
        }

    def list_versions(self) -> list[int]:
        """The versions that are kept and not known to be damaged, oldest first."""
        return [version for version in self._archive.numbers() if version not in self.damaged]

    def publish(
        self, step: int, network_state: Mapping[str, Tensor], trainer_state: State, info: Mapping[str, Any],
        parent: int | None = None, check_interrupt: Callable[[], object] = no_interrupt,
    ) -> NetworkVersion:  # fmt: skip
        """Store weights and trainer state as the next version, which does not serve yet.

        `info` is added to the manifest. `parent` defaults to the newest version. `check_interrupt` is called between
        the parts of the work.
        """
        with self.lock:
            # A version whose publication failed may still be on disk: its number is not reused.
            version, network = max([self._newest, *self._archive.numbers()]) + 1, self._build(network_state)
            check_interrupt()
            origin = parent if parent is not None else self._newest or None
            copied_weights = weights(network)
            digest = weights_digest(copied_weights)
            manifest = {"version": version, "parent": origin, "step": step, "digest": digest, "time": self._clock()}
            state = {"network": copied_weights, "trainer": trainer_state}
            check_interrupt()
            written = self._archive.save(version, state, {**info, **manifest})
            self._newest, self._info = version, {**self._info, version: written}
            published = self._cache[version] = NetworkVersion(version, step, digest, network, origin)
            check_interrupt()
            self._prune()
            return published

    def open(self, version: int) -> tuple[dict[str, Tensor], State, dict[str, Any]]:
        """The weights, the trainer's state and the manifest info of a version; every byte is checked."""
        if version not in (stored := self._archive.numbers()):
            known = [str(number) for number in stored if number not in self.damaged]
            where = self._archive.where(version)
            raise TownletError(f"there is no version {version}", did_you_mean(str(version), known), where)
        state, info = self._archive.load(version)
        self._require_own(version, info)
        network, trainer = get_part(state, "network", "version"), get_part(state, "trainer", "version")
        if weights_digest(network) != info.get("digest"):
            what = f"the weights of version {version} are not those that were published"
            raise TownletError(what, "use another version", self._archive.where(version))
        return network, trainer, info

    def _require_own(self, version: int, info: Mapping[str, Any]) -> None:
        """Refuse a version that was renamed or copied from another service, although its checksums match."""
        where = self._archive.where(version)
        if (own := info.get("version")) != version:
            raise TownletError(f"this is version {str(own)[:20]} under the name of {version}", "rename it back", where)
        if self._log_id and info.get("log", self._log_id) != self._log_id:
            raise TownletError(f"version {version} belongs to another service", "restore it from a backup", where)

    def promote(self, version: int, reason: str, estimate: Estimate | None = None) -> ServingChange:
        """Serve a version. While another one is pinned, this is only recorded."""
        with self.lock:
            promoted, before = self._load(version), self._log.changes
            make = partial(self._make_unless_pinned, "promote", version, reason, estimate)
            try:
                change = self._log.append(make)  # first: after a crash nothing may serve that was not recorded
            except TownletError:
                self._log.changes = before
                raise
            self._serve(promoted, change)
            return self._notify(change)

    def roll_back(self, reason: str, estimate: Estimate | None = None, to: int | None = None) -> ServingChange:
        """Serve an earlier version again, the previous one or `to`. While one is pinned, this is only recorded."""
        with self._operation():
            trail = self._log.last.trail[-2::-1]  # without the serving version, the newest first
            earlier = next(self._load_valid(trail), None) if to is None else self._load(to)
            if earlier is None:
                raise TownletError("there is no version to go back to", "pin a version, or turn gate-only on")
            make = partial(self._make_unless_pinned, "roll_back", earlier.version, reason, estimate)
            self._serve(earlier, make())  # first: a bad version must be replaced even if the disk is full
            return self._append_applied(make)

    def pin(self, version: int, reason: str = "manual") -> ServingChange:
        """Serve a version until `unpin`; meanwhile promotions and rollbacks are only recorded."""
        with self._operation():
            pinned = self._load(version)
            make = partial(self._make_change, "pin", version, reason, pinned=version)
            self._serve(pinned, make())
            return self._append_applied(make)

    def unpin(self, reason: str = "manual") -> ServingChange | None:
        """Release the pin; the same version serves until the next promotion. None if nothing was pinned."""
        with self._operation():
            if self.pinned is None:
                return None
            return self._append_applied(partial(self._make_change, "unpin", self.pinned, reason))

    def set_gate_only(self, gate_only: bool, reason: str) -> ServingChange | None:
        """Turn gate-only mode on or off; None if nothing changes."""
        with self._operation():
            if gate_only == self.gate_only and not self.fault:
                return None
            kind: ChangeKind = "gate_only" if gate_only else "gate_and_network"
            serving = self.serving.version if self.serving else 0
            return self._append_applied(
                lambda: self._make_change(kind, serving, reason, pinned=self.pinned, gate_only=gate_only)
            )

    def note(self, version: int, reason: str, estimate: Estimate | None = None) -> ServingChange:
        """Record that a version was held or refused, and so does not serve."""
        with self.lock:
            return self._log.append(
                lambda: self._make_change("note", version, reason, estimate, self.pinned, noted=True)
            )

    @contextmanager
    def _operation(self) -> Iterator[None]:
        """A change after those of other processes; if it cannot be stored there, it is not done here either."""
        with self.lock:
            before = self.serving
            try:
                self._retry(self._log.refresh)
                yield
            except StorageUnavailable as error:
                self.serving = before
                (problem,) = error.diagnostics
                serves = "the gate decides alone"
                if before is not None and not self.gate_only:
                    serves = f"version {before.version} serves"
                raise StorageUnavailable(f"NOT done, {serves}: {problem.what}", problem.fix) from error

    def _append_applied(self, make_change: Callable[[], ServingChange]) -> ServingChange:
        """Record a change that has taken effect; if that fails, the write-ahead log may still record it."""
        try:
            change = self._retry(partial(self._log.append, make_change))
        except TownletError as error:
            if not self._log.keeps_unstored:
                raise
            self._notify(self._log.last)
            (problem,) = error.diagnostics
            what = f"done, but not stored; after a restart the gate decides alone: {problem.what}"
            raise TownletError(what, problem.fix) from error
        return self._notify(change)

    def _notify(self, change: ServingChange) -> ServingChange:
        if change.applied:
            self.on_change(change)
        return change

    def _serve(self, version: NetworkVersion, change: ServingChange) -> None:
        if change.applied:
            self.serving = version
        self._prune()

    def _make_unless_pinned(
        self, kind: ChangeKind, version: int, reason: str, estimate: Estimate | None
    ) -> ServingChange:
        """A change that is only recorded while a version is pinned."""
        return self._make_change(kind, version, reason, estimate, self.pinned, noted=self.pinned is not None)

    def _make_change(
        self, kind: ChangeKind, version: int, reason: str, estimate: Estimate | None = None, pinned: int | None = None,
        *, noted: bool = False, gate_only: bool | None = None,
    ) -> ServingChange:  # fmt: skip
        """A change with the state after it, not yet applied; `noted`: it is only recorded."""
        trail = self._log.last.trail
        if kind == "roll_back" and not noted:
            trail = trail[: trail.index(version) + 1] if version in trail else (version,)
        elif not noted and gate_only is None:
            trail = (*(earlier for earlier in trail if earlier != version), version)[-MAX_TRAIL:]
        return ServingChange(
            kind=kind, version=version, reason=reason[:MAX_REASON], at=float(self._clock()), applied=not noted,
            estimate=estimate, serving=trail[-1] if trail else None, pinned=pinned, trail=trail,
            gate_only=self.gate_only if gate_only is None else gate_only,
            replaced_pin=self.replaced_pin if pinned is not None and kind != "pin" else None,
            record=self._synced_record(), fault=self.fault if gate_only is None else "",
        )  # fmt: skip

    def _reopen(self) -> None:
        """Find damaged versions, and serve the version that served last; if damaged, the nearest one before it."""
        for version in self._archive.numbers():
            try:
                info = self._archive.verify(version)
                self._require_own(version, info)
                self._info[version] = info
            except TownletError as error:
                self.damaged[version] = error
        last = self._log.last
        if last.serving is None:
            return
        older = [version for version in reversed(self.list_versions()) if version < last.serving]
        self.serving = next(self._load_valid(dict.fromkeys([*reversed(last.trail), *older])), None)
        if self.serving is None or self.serving.version == last.serving:
            return
        # Another version serves; if the damaged one was pinned, its replacement is pinned too.
        version, why = self.serving.version, str(self.damaged.get(last.serving, f"version {last.serving} is missing"))
        pinned = None if last.pinned is None else version
        also = "" if pinned is None else ", and pinned like the version it replaces"
        change = self._make_change("roll_back", version, f"at startup{also}: {why}", pinned=pinned)
        replaced = None if pinned is None else last.replaced_pin or last.pinned
        with suppress(TownletError):  # the service also decides on a full disk
            self._log.append(lambda: change.model_copy(update={"replaced_pin": replaced}))

    def _load_valid(self, versions: Sequence[int] | Mapping[int, Any]) -> Iterator[NetworkVersion]:
        """Load those of the versions that exist and are intact; raises if a network has another architecture."""
        for version in versions:
            if version in self._cache:
                yield self._cache[version]
                continue
            try:
                state, _, info = self.open(version)
            except TownletError as error:
                if version in self._archive.numbers():
                    self.damaged = {version: error, **self.damaged}
            else:
                yield self._add_to_cache(version, state, info)

    def _load(self, version: int) -> NetworkVersion:
        if version in self._cache:
            return self._cache[version]
        state, _, info = self.open(version)
        return self._add_to_cache(version, state, info)

    def _add_to_cache(self, version: int, state: Mapping[str, Tensor], info: Mapping[str, Any]) -> NetworkVersion:
        network = self._build(state)
        self._cache[version] = NetworkVersion(version, int(info["step"]), info["digest"], network, info["parent"])
        return self._cache[version]

    def _build(self, state: Mapping[str, Tensor]) -> nn.Module:
        """A new network with copies of these weights; raises if any is missing or has another shape."""
        network = deepcopy(self._template)
        restore_weights(network, dict(state))
        return network.eval().requires_grad_(False)

    def _prune(self) -> None:
        """Remove all but the serving version, the one before it, the pinned one and the newest few."""
        last = self._log.last
        needed = {self._newest, *last.trail[-2:], last.pinned}
        kept = needed | self._archive.needed_for_replay()
        if self.serving:
            needed.add(self.serving.version)
        self._cache = {version: cached for version, cached in self._cache.items() if version in needed}
        removed = [version for version in self.list_versions()[: -self._keep] if version not in kept]
        self._info = {version: info for version, info in self._info.items() if version not in removed}
        with suppress(TownletError):  # retried at the next pruning; the next publication reports a failing disk
            self._archive.remove(removed)
