"""Commits of a decision service to be traced, and checks of what must be left after a power loss."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from crash.run_workloads import Acknowledged, Mark
from crash.training_process import differing_leaves
from decide.ads_service import FileService, request, run_visits, start_service
from decide.publisher import Twin, twin_state
from townlet.decide.app import load_service_tokens
from townlet.decide.events import DecisionMade
from townlet.decide.recovery import read_events
from townlet.decide.storage import LOG, SNAPSHOTS, serving_log, snapshots
from townlet.decide.storage.log import WriteAheadLog
from townlet.decide.storage.segments import read_records
from townlet.decide.storage.version_folder import VersionFolder
from townlet.decide.storage.versions import VersionStore
from townlet.runs import checkpoint
from townlet.runs.serialization import flatten
from townlet.web.tokens import ROLES


def payload(number: int) -> bytes:
    """The record of a number."""
    chance = random.Random(number)
    return b"%d " % number + chance.randbytes(chance.choice((0, 5, 300, 300, 1500, 6000)))


class DecisionLog:
    """A log in small segments: single records and groups, and a restart."""

    @staticmethod
    def act(folder: Path, mark: Mark) -> None:
        for _ in range(2):
            with closing(WriteAheadLog(folder / "service" / "log", segment_bytes=8000)) as log:
                log.on_commit = lambda synced: mark(synced=synced)
                for turn in range(40):
                    with log.batch():
                        for _ in range(1 + turn % 4):
                            log.append(payload(log.last + 1))
                    if turn % 3 == 0:
                        log.wait(log.last)

    @staticmethod
    def check(folder: Path, acknowledged: Acknowledged) -> None:
        place, last = folder / "service" / "log", max((one.get("synced", 0) for one in acknowledged), default=0)
        if not last and not place.exists():
            return
        for _ in range(2):  # before recovery, and after it
            found = dict(read_records(place))
            assert list(found) == list(range(min(found, default=1), max(found, default=0) + 1))
            assert max(found, default=0) >= last, f"record {last} is lost"
            assert min(found, default=1) == 1
            for number, data in found.items():
                assert data == payload(number), number
            with closing(WriteAheadLog(place)) as log:
                assert log.last == max(found, default=0)
                assert log.wait(log.append(payload(log.last + 1)), 10)


def generated_tokens(folder: Path) -> dict[str, str | None]:
    tokens = load_service_tokens(folder, None).tokens
    return {role: tokens.first(role) for role in ROLES}


class Snapshots:
    """A new service: visitors, steps, versions and snapshots; a restart in between."""

    WORDS = ("segment_bytes=20000", "versions=3")

    @staticmethod
    def act(folder: Path, mark: Mark) -> None:
        for seed in (1, 2):
            mark(tokens=generated_tokens(folder / "home" / "ads"))  # as the command does first
            service, training, clock = start_service(folder / "home" / "ads", Snapshots.WORDS)
            mark(log_id=service.storage.log.log_id.hex())
            for turn in range(4):
                run_visits(service, training, clock, 21, seed=10 * seed + turn)
                clock.now += 1000 * turn
                (answer,) = service.answer([request(clock.now, f"{seed} {turn}")])
                assert service.storage.log.wait(answer.record, 10)
                mark(record=answer.record, reply=answer.reply)
                service.storage.save_snapshot()
                mark(snapshot=max(checkpoint.step_and_serial(path)[0] for path in _snapshots(folder)))
            service.storage.close()

    @staticmethod
    def check(folder: Path, acknowledged: Acknowledged) -> None:
        place = folder / "home" / "ads"
        for one in acknowledged:
            assert one.get("tokens") in (None, generated_tokens(place))
        service, _, _ = start_service(place, Snapshots.WORDS)
        service.storage.close()
        started = [one["log_id"] for one in acknowledged if "log_id" in one]
        if not started:
            return
        assert service.storage.log.log_id.hex() == started[0]
        found = {
            event.reply["decisionId"]: event.reply
            for event in read_events(place / LOG)
            if isinstance(event, DecisionMade)
        }
        for one in acknowledged:
            if "reply" in one:
                assert found[one["reply"]["decisionId"]] == one["reply"]
        assert service.storage.state.decisions == len(found)
        newest = max((one["snapshot"] for one in acknowledged if "snapshot" in one), default=0)
        assert not newest or max(checkpoint.step_and_serial(path)[0] for path in _snapshots(folder)) >= newest
        for path in _snapshots(folder):
            checkpoint.verify(path)
        # The same state without snapshots, from the log alone.
        shutil.rmtree(place / SNAPSHOTS, ignore_errors=True)
        again, _, _ = start_service(place, Snapshots.WORDS)
        again.storage.close()
        odd = differing_leaves(flatten(_known(service)), flatten(_known(again)))
        assert not odd, odd


def _snapshots(folder: Path) -> list[Path]:
    return checkpoint.paths(folder / "home" / "ads" / SNAPSHOTS)


def _known(service: FileService) -> dict[str, Any]:
    state = snapshots.serialize(snapshots.copy_state(service.storage.state))
    del state["keys"]  # every start has a new key
    return {"state": state, "trainer": service.storage.trainer.copy()}


class Publications:
    """Versions that are published, promoted, rolled back and pinned, and the switch to the gate alone."""

    @staticmethod
    def act(folder: Path, mark: Mark) -> None:
        serving_log.KEPT_CHANGES = 9  # type: ignore[misc]  # the record is rewritten after twice as many lines
        versions = VersionStore(VersionFolder(folder / "service" / "versions"), Twin(), keep=3)

        def serving(**more: Any) -> None:
            now = versions.serving.version if versions.serving else None
            mark(serving=now, pinned=versions.pinned, gate_only=versions.gate_only, **more)

        for number in range(1, 25):
            mark(begins="publish")
            versions.publish(number, twin_state(number), {"step": number}, {})
            mark(published=number)
            mark(begins="change")
            versions.promote(number, "the next")
            serving()
            changes: tuple[tuple[int, Callable[[], object]], ...] = (
                (5, lambda: versions.roll_back("every fifth")),
                (7, lambda: versions.pin(versions.list_versions()[0])),
                (9, lambda: versions.unpin()),
                (11, lambda: versions.set_gate_only(True, "an operator")),
                (13, lambda: versions.set_gate_only(False, "an operator")),
            )
            for turn, change in changes:
                if number % 14 == turn:
                    mark(begins="change")
                    change()
                    serving()

    @staticmethod
    def check(folder: Path, acknowledged: Acknowledged) -> None:
        place = folder / "service" / "versions"
        changes_made = [one for one in acknowledged if "serving" in one or one.get("begins") == "change"]
        versions = VersionStore(VersionFolder(place), Twin(), keep=3)
        assert not versions.damaged, versions.damaged
        now = (versions.serving.version if versions.serving else None, versions.pinned, versions.gate_only)
        states = [(one["serving"], one["pinned"], one["gate_only"]) for one in changes_made if "serving" in one]
        if versions.serving:
            weights = versions.serving.network.state_dict()
            assert not differing_leaves(weights, twin_state(versions.serving.version))
        if changes_made and "serving" in changes_made[-1]:
            assert now == states[-1], (now, states[-1])
        published = max((one["published"] for one in acknowledged if "published" in one), default=0)
        assert max(versions.list_versions(), default=0) >= published
        for version in versions.list_versions():
            network, trainer, _ = versions.open(version)
            assert trainer["step"] == version
            assert not differing_leaves(network, twin_state(version))
        following = max(versions.list_versions(), default=0) + 1
        versions.publish(following, twin_state(following), {"step": following}, {})
        versions.pin(following, "after the crash")
        assert VersionStore(VersionFolder(place), Twin(), keep=3).pinned == following
