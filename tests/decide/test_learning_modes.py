"""Serving without learning, and training without asking the gate again."""

from __future__ import annotations

from pathlib import Path

import pytest

from decide.ads_service import FileService, run_visits, start_service
from decide.both_storages import replay_folder
from townlet.decide.stats import ServiceStats

OTHER_GATE = "gate.threshold=0.12"  # it would no longer send many decisions
MORE_STEPS = "learning.samples_per_insert=100"


def weights(service: FileService) -> dict[str, list[float]]:
    return {name: tensor.tolist() for name, tensor in service.storage.trainer.weights().items()}


def test_service_without_learning_keeps_its_version_and_its_experience(tmp_path: Path) -> None:
    service, training, clock = start_service(tmp_path, ["learning.enabled=false"])
    initial = weights(service)
    run_visits(service, training, clock, 60)
    assert training.train_round() is None
    stats = ServiceStats(service, training).as_json()
    assert stats["training"]["enabled"] is False
    assert stats["training"]["step"] == 0
    assert stats["versions"]["serving"] == 1
    assert weights(service) == initial
    assert stats["buffer"]["joined"] > 10
    service.storage.close()
    service, training, clock = start_service(tmp_path)  # learning is on again
    assert ServiceStats(service, training).as_json()["training"]["enabled"] is True
    assert training.train_round() is not None
    run_visits(service, training, clock, 60, seed=2)
    service.storage.close()
    service, training, clock = start_service(tmp_path, ["learning.enabled=false"])
    steps = service.storage.trainer.step
    run_visits(service, training, clock, 30, seed=3)
    assert service.storage.trainer.step == steps > 0
    service.storage.close()
    found = list(replay_folder(tmp_path))
    assert len(found) > 3
    assert all(one.same for one in found)


def trained_on(folder: Path, *words: str) -> tuple[dict[str, list[float]], float | None]:
    """The weights after steps with other settings, on the same experience; and the agreement with the gate."""
    service, training, clock = start_service(folder)
    run_visits(service, training, clock, 120)
    service.storage.close()
    service, training, _ = start_service(folder, [MORE_STEPS, *words])
    assert all(training.step() for _ in range(3))
    training.publish()
    found, stats = weights(service), ServiceStats(service, training).as_json()
    service.storage.close()
    assert all(version.same for version in replay_folder(folder))
    assert stats["training"]["validate"] is ("learning.validate=false" not in words)
    agreement: float | None = stats["training"]["agreement_lifetime"]
    return found, agreement


@pytest.mark.parametrize("skip", ["true", "false"])
def test_training_without_validation_is_independent_of_the_current_gate(tmp_path: Path, skip: str) -> None:
    usual, agreement = trained_on(tmp_path / "usual")
    assert agreement == 1.0
    skipping = f"learning.reward.skip_disagreement={skip}"
    other, agreement = trained_on(tmp_path / "other", OTHER_GATE, skipping)
    assert other != usual
    assert agreement is not None
    assert agreement < 0.9
    unvalidated, agreement = trained_on(tmp_path / "unvalidated", OTHER_GATE, skipping, "learning.validate=false")
    assert unvalidated == usual
    assert agreement is None
