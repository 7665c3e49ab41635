"""A domain of a user while it serves: its messages, its actions, and failures of its functions."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from decide.ads_service import FileService, ask, start_service
from decide.both_storages import replay_folder
from decide.custom.conftest import Write
from townlet.decide.domain import InvalidMessage
from townlet.decide.domains import DOMAINS
from townlet.decide.storage.verify import verify
from townlet.decide.training_thread import TrainingThread
from townlet.errors import TownletError

BROKEN_FEATURES = (
    '        observation["shield"],\n',
    '        observation["shield"] / (observation["distance"] != 7),\n        *[0] * (observation["distance"] == 8),\n',
)
BROKEN_REWARD = ('outcome["hurt"]) / 20', 'outcome["hurt"]) / (20 * (outcome["damage"] != 7))')
FROM_NEXT = (
    'outcome = {"damage": 12.0, "hurt": 0.0}',
    "",
    "def reward(outcome):",
    "def reward(before, after):",
    'return (outcome["damage"] - outcome["hurt"]) / 20',
    'return (after["stones"] - before["stones"]) / (before["distance"] - 7) / 10',
    'return {"damage": damage',
    'found = {"damage": damage',
)


def observed(time: float, where: str = "cave", **changes: Any) -> dict[str, Any]:
    fields = {"distance": 4.0, "shield": True, "stones": 2, "hero": "archer"}
    return {"type": "observation", "timestamp": time, "territoryId": where, **fields, **changes}


def outcome(id: str, damage: float = 10.0) -> dict[str, Any]:
    return {"type": "outcome", "decisionId": id, "damage": damage, "hurt": 0}


def play(service: FileService, training: TrainingThread, rounds: int, first: int = 0) -> None:
    game = service.domain.make_game(first, f"played {first}", 0)
    for number in range(rounds):
        for report in game.apply(ask(service, game.observe())[0]):
            assert service.report(report).reply["type"] == "outcome_ack"
        game.advance()
        if number % 20 == 19:
            training.train_round()


def check_log(service: FileService, folder: Path, versions: int) -> None:
    """The files are intact, and training again from the log gives the same weights."""
    assert service.storage.counts().balanced
    service.close()
    report = verify(folder)
    assert [item for item in report.items if item.state != "intact"] == []
    replayed = list(replay_folder(folder))
    assert len(replayed) >= versions
    assert all(version.same for version in replayed)


def test_messages_follow_from_the_examples(write: Write, tmp_path: Path) -> None:
    service, _, _ = start_service(tmp_path / "service", domain=write())
    (answer,) = ask(service, observed(1))
    assert answer["type"] == "decision"
    assert answer["action"] in ("club", "throw", "charge", "roar")
    assert service.report(outcome(answer["decisionId"])).reply == {
        "type": "outcome_ack",
        "decisionId": answer["decisionId"],
    }
    (answer,) = ask(service, observed(2))
    report = {"type": "not_executed", "decisionId": answer["decisionId"]}
    assert service.report(report).reply["type"] == "outcome_ack"
    assert (service.storage.counts().joined, service.storage.counts().failed) == (1, 1)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"distance": "near"}, "distance: Input should be a valid number"),
        ({"distance": 10**400}, "distance: "),
        ({"distance": float("nan")}, "distance: Input should be a finite number"),
        ({"shield": 1}, "shield: Input should be a valid boolean"),
        ({"hero": None}, "hero: Input should be a valid string"),
        ({"club": 1}, "club: Extra inputs are not permitted"),
        ({"timestamp": -1}, "timestamp: "),
    ]
    for change, words in changes:
        (refused,) = ask(service, observed(3, **change))
        assert refused["code"] == "INVALID_OBSERVATION"
        assert refused["message"].startswith(words)
    schema = service.domain.schema()
    assert set(schema) >= {"observation", "outcome", "not_executed", "decision", "wait"}
    assert set(schema["observation"]["required"]) == {
        "timestamp",
        "territoryId",
        "distance",
        "shield",
        "stones",
        "hero",
    }
    assert schema["decision"]["properties"]["action"]["enum"] == ["club", "throw", "charge", "roar"]
    service.close()


@pytest.mark.parametrize(
    "example", ['{"player": {"cells": [[1, 2], [3]], "name-tag": "x"}}', '{"class": 1, "model_": 2}']
)
def test_any_json_can_be_an_observation(write: Write, example: str, tmp_path: Path) -> None:
    fields = json.loads(example)
    file = write(
        'observation = {"distance": 4.5, "shield": True, "stones": 3, "hero": "knight"}', f"observation = {fields}"
    )
    text = Path(file).read_text(encoding="utf-8")
    text = text[: text.index("def features")] + "def features(observation):\n    return [len(observation)]\n"
    Path(file).write_text(f"{text}\n\ndef reward(outcome):\n    return 0.5\n", encoding="utf-8")
    service, _, _ = start_service(tmp_path / "service", domain=file)
    (answer,) = ask(service, {"type": "observation", "timestamp": 1, "territoryId": "a", **fields})
    assert answer["type"] == "decision"
    service.close()


def test_only_allowed_actions_are_sent(write: Write, tmp_path: Path) -> None:
    none = ('if action != "throw" or observation["stones"] > 0', 'if action == "roar" and observation["stones"]')
    service, training, _ = start_service(tmp_path / "service", domain=write(*none))
    game = service.domain.make_game(1, "allowed", 0)
    for number in range(60):
        message = game.observe()
        (answer,) = ask(service, message)
        if message["stones"]:
            assert answer["action"] == "roar"
        else:
            assert (answer["type"], answer["reason"]) == ("wait", "no_action_allowed")
        for report in game.apply(answer):
            service.report(report)
        game.advance()
        if number % 20 == 19:
            training.train_round()
    check_log(service, tmp_path / "service", 2)


def test_failing_features_refuse_only_their_message(
    write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(*BROKEN_FEATURES)
    service, training, _ = start_service(tmp_path / "service", domain=file)
    play(service, training, 40)
    batch = [observed(1, "a"), observed(1, "b", distance=7.0), observed(1, "c", distance=8.0), observed(1, "d")]
    with caplog.at_level(logging.WARNING):
        first, second, third, fourth = ask(service, *batch)
    assert first["type"] == fourth["type"] == "decision"
    assert second["code"] == "INTERNAL"
    assert third["code"] == "INVALID_OBSERVATION"
    assert third["message"].startswith("features returned 7 numbers instead of 6")
    assert f"{file}:27: features failed: ZeroDivisionError: division by zero" in caplog.messages
    for number in range(2, 100):
        ask(service, observed(number, "b", distance=7.0))
    shown = [text for text in caplog.messages if "ZeroDivisionError" in text]
    assert [text.rpartition("(")[2] for text in shown[1:]] == ["10 times)"]
    assert ask(service, observed(1, "b"))[0]["type"] == "decision"
    play(service, training, 40, first=1)
    assert service.storage.counts().decisions == 83
    check_log(service, tmp_path / "service", 3)


def test_failing_reward_leaves_the_decision_pending(
    write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(*BROKEN_REWARD)
    service, _, _ = start_service(tmp_path / "service", domain=file)
    (answer,) = ask(service, observed(1))
    refused = service.report(outcome(answer["decisionId"], damage=7)).reply
    assert refused == {
        "type": "error",
        "code": "INTERNAL",
        "message": "my-game failed on this message; see the output of the service",
    }
    assert f"{file}:35: reward failed: ZeroDivisionError: float division by zero" in caplog.messages
    assert service.storage.counts().pending == 1
    assert service.report(outcome(answer["decisionId"], damage=200)).reply["type"] == "outcome_ack"
    assert f"{file}:33: reward returned 10, which counts as 1" in caplog.messages
    assert service.storage.state.totals.actual == 1.0
    for number in range(2, 11):
        (answer,) = ask(service, observed(number))
        service.report(outcome(answer["decisionId"], damage=100 + number))
    assert [text for text in caplog.messages if "which counts as 1" in text][1:] == [
        f"{file}:33: reward returned 5.5, which counts as 1 (10 times)"
    ]
    check_log(service, tmp_path / "service", 0)


def test_reward_from_the_next_observation(write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = write(*FROM_NEXT)
    service, training, _ = start_service(tmp_path / "service", domain=file)
    assert service.domain.report_types == ("not_executed",)
    ask(service, observed(1, stones=1), observed(2, stones=3, distance=7.0))
    assert service.storage.counts().joined == 1
    assert service.storage.state.totals.actual == pytest.approx(2 / (4 - 7) / 10)
    (answer,) = ask(service, observed(3))  # the reward of the second decision fails: its outcome is unknown
    assert answer["type"] == "decision"
    assert f"{file}:35: reward failed: ZeroDivisionError: float division by zero" in caplog.messages
    counts = service.storage.counts()
    assert (counts.joined, counts.expired, counts.pending) == (1, 1, 1)
    play(service, training, 60)
    check_log(service, tmp_path / "service", 2)


def test_reward_of_observations_sees_numbers_only(write: Write) -> None:
    domain = DOMAINS[write(*FROM_NEXT)]
    before = domain.parse_observation(observed(1)).row["scalars"]
    assert before.tolist() == [4.0, 1.0, 2.0]


def test_functions_cannot_change_the_message(write: Write) -> None:
    vandal = (
        "    return [\n        observation",
        "    observation['hero'] = 'dragon'\n    return [\n        observation",
    )
    domain, message = DOMAINS[write(*vandal)], observed(1)
    domain.parse_observation(message)
    assert message == observed(1)


def test_exit_in_a_function_does_not_end_the_service(write: Write) -> None:
    leaving = ('        observation["shield"],\n', '        exit() if observation["distance"] == 7 else 1,\n')
    with pytest.raises(InvalidMessage, match="my-game failed on this message"):
        DOMAINS[write(*leaving)].parse_observation(observed(1, distance=7.0))


def test_game_is_optional(write: Write, tmp_path: Path) -> None:
    file = Path(write())
    text = file.read_text(encoding="utf-8")
    file.write_text(text[: text.index("class Game")], encoding="utf-8")
    service, training, _ = start_service(tmp_path / "service", domain=str(file))
    service.warm_up()
    training.start()
    training.stop()
    assert ask(service, observed(1))[0]["type"] == "decision"
    with pytest.raises(
        TownletError, match=rf"^{file}: the file has no simulated game; connect your own game, or add a "
    ):
        service.domain.make_game(1, "no game", 0)
    service.close()


def test_without_the_network_the_first_allowed_action_is_sent(write: Write, tmp_path: Path) -> None:
    file = write('action != "throw" or observation["stones"] > 0', 'action != "club" or observation["stones"] > 0')
    service, _, _ = start_service(tmp_path / "service", domain=file)
    service.versions.set_gate_only(True, "a test")
    answers = [ask(service, observed(time, stones=stones))[0]["action"] for time, stones in ((1, 2), (2, 0))]
    assert answers == ["club", "throw"]
    service.close()
