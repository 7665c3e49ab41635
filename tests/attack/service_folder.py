"""The folder of a small decision service, and the state of a service started from a copy of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

from attack.damage import Command, Effect, command
from decide.ads_service import FileService, ask, start_service
from townlet.decide.app import load_service_tokens
from townlet.decide.stats import ServiceStats
from townlet.decide.storage.versions import weights_digest
from townlet.decide.training_thread import TrainingThread
from townlet.errors import TownletError
from townlet.web.tokens import ROLES

TERRITORIES = 8
VERIFY = ("decide", "verify")
UNREADABLE = "unreadable"  # `verify` notes one damaged slot of the control file without calling it damage
HIDDEN = ("curves", "alarms", "process")  # of the statistics: depends on the clock, or is compared separately


class ServiceView(NamedTuple):
    """Visible state of a service after a start: state, statistics, and replies to fixed observations."""

    state: dict[str, Any]
    alarms: frozenset[str]


Roles = dict[str, str | None]  # role of each token of the undamaged folder; None if it is refused


class Started(NamedTuple):
    """Result of a start: the visible state, or the refusal."""

    view: ServiceView | None
    refusal: str
    roles: Roles


class DamageResult(NamedTuple):
    """The effect of damage, and the output."""

    effect: Effect
    output: str


def build(folder: Path, domain: str, turns: int, words: tuple[str, ...]) -> Path:
    """Run a service in this process. The folder is what a `kill -9` after the last reply would leave."""
    live = folder.with_name(f"{folder.name}-live")
    service, training, clock = start_service(live, words, domain)
    games = [service.domain.make_game(1, f"site {place}", 0) for place in range(TERRITORIES)]
    for turn in range(turns):
        for game, reply in zip(games, ask(service, *[game.observe() for game in games]), strict=True):
            for report in game.apply(reply) + game.advance():
                service.report(report)
        clock.now += 1
        service.storage.maintain()
        _operate(service, training, turn, turns)
    assert service.storage.log.wait(service.storage.log.last, 60)
    load_service_tokens(live, None)  # as `decide serve` makes them
    shutil.copytree(live, folder)
    service.storage.close()
    shutil.rmtree(live)
    return folder


def _operate(service: FileService, training: TrainingThread, turn: int, turns: int) -> None:
    """Train, publish versions, take snapshots; pin, unpin and switch gate-only."""
    if turn % 5 == 4:
        training.step()
    if turn % (turns // 6) == turns // 6 - 1:
        training.publish()
    if turn in (turns // 3, turns * 3 // 4):
        service.storage.save_snapshot()
    if turn == turns // 2:
        service.versions.set_gate_only(True, "maintenance")
        service.versions.set_gate_only(False, "maintenance is over")
        service.versions.pin(1)
    if turn == turns * 2 // 3:
        service.versions.unpin()


def start(folder: Path, domain: str, words: tuple[str, ...], known: dict[str, str]) -> Started:
    """Start a service, send fixed observations, and stop it. Only a `TownletError` is a refusal."""
    roles: Roles = {}
    try:
        found = load_service_tokens(folder, None).tokens
        roles = {role: identity.role if (identity := found.identify(token)) else None for role, token in known.items()}
        service, training, _ = start_service(folder, words, domain)
    except TownletError as error:
        return Started(None, str(error), roles)
    try:
        return Started(_view(service, training), "", roles)
    except TownletError as error:
        return Started(None, str(error), roles)
    finally:
        service.storage.close()


def tokens_of(folder: Path) -> dict[str, str]:
    """The token of each role."""
    found = load_service_tokens(folder, None).tokens
    return {role: token for role in ROLES if (token := found.first(role))}


def _view(service: FileService, training: TrainingThread) -> ServiceView:
    whole = ServiceStats(service, training).as_json()
    alarms = frozenset(f"{alarm['name']}: {alarm['what']}" for alarm in whole["alarms"])
    for name in ("now", "uptime_seconds"):
        del whole["service"][name]
    serving = service.versions.serving
    state = {name: value for name, value in whole.items() if name not in HIDDEN}
    state |= {
        "records": service.storage.log.last,
        "weights": weights_digest(service.storage.trainer.weights()),
        "serving": weights_digest(serving.network.state_dict()) if serving else None,
        "answers": [_answers(service, place) for place in range(3)],
    }
    return ServiceView(state, alarms)


def _answers(service: FileService, place: int) -> list[dict[str, Any]]:
    """Decisions for a new territory, and for one with a history."""
    fresh, known = (
        service.domain.make_game(seed, name, 0) for seed, name in ((7, f"new {place}"), (1, f"site {place}"))
    )
    later = known.observe() | {"timestamp": 1e6}
    return [reply | {"decisionId": ""} for reply in ask(service, fresh.observe(), later)]  # ids are random


def effect(before: Started, folder: Path, domain: str, words: tuple[str, ...], known: dict[str, str]) -> DamageResult:
    """Verify a damaged folder, start from it, and compare with the undamaged one.

    A start that refuses, raises an alarm or refuses a token has reported the damage. `verify` must name it as well,
    except for tokens, which belong to their owner.
    """
    verified, started = verify(folder), start(folder, domain, words, known)
    output = f"verify: {verified.code} {verified.text[:4000]}"
    named = Effect.REPORTED if verified.code else Effect.SILENT
    if any(role not in (None, name) for name, role in started.roles.items()):
        return DamageResult(Effect.SILENT, f"{output}; roles: {started.roles}")
    if None in started.roles.values():
        return DamageResult(Effect.REPORTED, f"{output}; roles: {started.roles}")
    if started.view is None:
        return DamageResult(named if started.roles else Effect.REPORTED, f"{output}; refused: {started.refusal}")
    assert before.view is not None
    alarms = started.view.alarms - before.view.alarms
    odd = [name for name, value in before.view.state.items() if value != started.view.state.get(name)]
    output += f"; alarms: {sorted(alarms)}; differs: {odd}"
    if alarms:
        return DamageResult(named, output)
    if odd:
        return DamageResult(Effect.SILENT, output)
    if not verified.code and UNREADABLE not in verified.text:
        return DamageResult(Effect.HARMLESS, output)
    after = verify(folder)
    return DamageResult(Effect.REPORTED if after.code or UNREADABLE in after.text else Effect.REPAIRED, output)


def verify(folder: Path) -> Command:
    """`townlet decide verify FOLDER`."""
    return command(*VERIFY, str(folder))
