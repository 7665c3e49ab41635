"""A `bandit-ads` service in this process, with a manual clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from townlet.decide.clock import ManualClock as Clock
from townlet.decide.domains import DOMAINS
from townlet.decide.service import Service
from townlet.decide.settings import load_settings
from townlet.decide.storage.file import FileStorage
from townlet.decide.training_thread import TrainingThread


class FileService(Service):
    """A service whose storage is a folder."""

    storage: FileStorage


QUICK = ("learning.interval=0", "learning.lr=0.002", "memory.expire_after=20")


def start_service(
    folder: Path, words: Sequence[str] = (), domain: str = "bandit-ads", *, accept_data_loss: bool = False
) -> tuple[FileService, TrainingThread, Clock]:
    clock, settings = Clock(), load_settings(domain, [*QUICK, *words], DOMAINS)
    service = FileService(FileStorage(folder, DOMAINS[domain], settings, clock, accept_data_loss=accept_data_loss))
    training = TrainingThread(service.storage)
    if service.versions.serving is None:
        training.publish()
    return service, training, clock


def request(time: float, site: str = "a", **changes: Any) -> dict[str, Any]:
    whole = {"type": "ad_request", "timestamp": time, "territoryId": site, "traits": [0.5] * 8, "budgets": [1.0] * 12}
    return whole | changes


def click(id: str, clicked: bool = True, **changes: Any) -> dict[str, Any]:
    return {"type": "click_report", "decisionId": id, "clicked": clicked, **changes}


def ask(service: Service, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    return [answer.reply for answer in service.answer(messages)]


def stop(service: FileService) -> None:
    """Make the log refuse writes."""
    assert service.storage.log.wait(service.storage.log.last, 20)
    service.storage.log.problem = "no room"


def run_visits(service: FileService, training: TrainingThread, clock: Clock, visits: int, seed: int = 1) -> Any:
    """Simulate visits, with a training step every 4th and a version every 20th; returns the simulated site."""
    site = service.domain.make_game(seed, f"site {seed}", 0)
    for visit in range(visits):
        for report in site.apply(ask(service, site.observe())[0]) + site.advance():
            service.report(report)
        clock.now += 1
        service.storage.maintain()
        if visit % 4 == 3:
            training.step()
        if visit % 20 == 19:
            training.publish()
    return site
