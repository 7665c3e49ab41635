"""Output of the decide commands."""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

import warm
from cli.program import Program, program
from decide.ads_service import request, run_visits, start_service
from decide.service_process import START, TOKENS, Process, environment
from townlet.decide.events import VersionPublished
from townlet.decide.storage import VERSIONS
from townlet.decide.storage.serving_log import SERVING_LOG, ServingChange, ServingLog

STRANGER = "http://stranger.example:5173"


class Captured(Process):
    """A service whose output is captured."""

    def start(self) -> Captured:
        command = [sys.executable, "-m", "townlet", "decide", "serve", *self._words]
        with open(self.folder.with_suffix(".txt"), "wb") as file:
            self.process = warm.Popen(command, stdout=file, stderr=file, env=self.environment())
        return self

    def environment(self) -> dict[str, str]:
        return environment()

    @property
    def words(self) -> str:
        return self.folder.with_suffix(".txt").read_text(encoding="utf-8")

    def until(self, words: str) -> str:
        until = time.monotonic() + START
        while words not in self.words:
            assert time.monotonic() < until, f"never said: {words}\n{self.words}"
            time.sleep(0.05)
        return self.words


@pytest.fixture
def townlet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Program:
    """`townlet("versions")` runs the command in this process."""
    for name, token in TOKENS.items():
        monkeypatch.setenv(name, token)
    return program(capsys, monkeypatch, "decide")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captured]:
    running = Captured(tmp_path_factory.mktemp("captured") / "ads", "bandit-ads", "learning.interval=0.2")
    running.start().wait()
    yield running
    running.end(signal.SIGTERM)


def test_same_games_can_be_simulated_again(server: Captured, townlet: Program) -> None:
    for _ in range(2):
        found = townlet(
            "simulate", "bandit-ads", "--url", server.address, "--games", "2", "--observations", "20", "--json"
        )
        assert found.code == 0, found.err
        printed = json.loads(found.out)
        assert printed["observations"] == 40
        assert printed["refused"] == 0
        assert 0 <= printed["mean_reward"] <= 1


def test_refused_games_are_reported_as_a_failure(server: Captured, townlet: Program) -> None:
    found = townlet("simulate", "hive", "--url", server.address, "--games", "2", "--observations", "3")
    assert found.code == 1
    assert "UNKNOWN_TYPE: unknown message type 'observation_data'" in found.err


def test_refused_origin_is_reported_once(server: Captured) -> None:
    for _ in range(3):
        with pytest.raises(InvalidStatus):
            connect(server.url, origin=Origin(STRANGER), proxy=None)
    words = server.until(f"a page from {STRANGER} was refused; if it is yours, allow it with --origin {STRANGER}")
    assert words.count(STRANGER) == 2


def test_start_and_stop_are_announced(tmp_path: Path, townlet: Program) -> None:
    service = Captured(tmp_path / "ads", "bandit-ads")
    service.start()
    words = service.until("Press Ctrl-C to stop")
    assert words.index("Opening") < words.index("Games connect")
    played = townlet("simulate", "bandit-ads", "--url", service.address, "--games", "1", "--observations", "7")
    assert played.code == 0, played.err
    service.end(signal.SIGINT)
    assert re.search(rf"Saved\. Version \d+ served; {tmp_path / 'ads'} holds 7 decisions\.", service.words)


class Own(Captured):
    """A service that generates its tokens."""

    def environment(self) -> dict[str, str]:
        return {name: value for name, value in super().environment().items() if name not in TOKENS}


def test_tokens_are_generated_printed_once_and_used_by_simulate(
    tmp_path: Path, townlet: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in TOKENS:
        monkeypatch.delenv(name)
    service = Own(tmp_path / "ads", "bandit-ads").start()
    words = service.until("Press Ctrl-C to stop")
    tokens = json.loads((service.folder / "tokens.json").read_text())
    assert sorted(tokens) == ["game", "operator", "viewer"]
    assert all(token in words for token in tokens.values())
    assert f"http://127.0.0.1:{service.port}/?token={tokens['operator']}" in words
    assert service.process is not None
    shown = (
        Path(f"/proc/{service.process.pid}/cmdline").read_text()
        + Path(f"/proc/{service.process.pid}/environ").read_text()
    )
    assert not any(token in shown for token in tokens.values())
    where = ("--folder", str(service.folder), "--url", service.address)
    found = townlet("simulate", "bandit-ads", *where, "--games", "2", "--observations", "5", "--json")
    assert found.code == 0, found.err
    assert "mean_reward" in json.loads(found.out)
    refused = townlet("simulate", "bandit-ads", "--folder", str(tmp_path), "--url", service.address)
    assert refused.code == 2
    assert "401, the token is missing or wrong (a token is needed" in refused.err
    service.end(signal.SIGTERM)
    service.start()
    again = service.until("Press Ctrl-C to stop")
    assert "(the operator's token, from" in again
    assert not any(token in again for token in tokens.values())
    service.end(signal.SIGTERM)


def test_stop_with_a_full_disk_fails_with_one_line(tmp_path: Path) -> None:
    service = Process(tmp_path / "ads", "bandit-ads")
    command = [sys.executable, "-m", "townlet", "decide", "serve", *service._words]
    service.process = warm.Popen(command, stderr=subprocess.PIPE, env=environment())
    service.wait()
    with connect(service.url, proxy=None) as link:
        link.send(json.dumps(request(1.0)))
        assert json.loads(link.recv(20))["decisionId"].split("-")[1] != "0"
        _, hard = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (0, hard))
        link.send(json.dumps(request(2.0)))
        assert json.loads(link.recv(20))["decisionId"].split("-")[1] == "0"
    service.process.send_signal(signal.SIGINT)
    printed = service.process.communicate(timeout=30)[1].decode().splitlines()
    assert service.process.returncode == 1
    assert [line for line in printed if not line.startswith(("Opening", "a training round failed"))] == [printed[-1]]
    assert printed[-1].startswith("Saved, except for the last records: cannot write the log in")


def test_option_among_settings_is_named(townlet: Program) -> None:
    found = townlet("serve", "hive", "port=8790")
    assert found.code == 2
    assert "write --port 8790" in found.err


def test_unknown_domain_is_the_only_message(townlet: Program) -> None:
    found = townlet("serve", "hivee")
    assert found.code == 2
    assert " ".join(found.err.split()) == "no domain is called 'hivee' fix: did you mean 'hive'?"


def test_missing_service_is_not_reported_as_a_disk_error(monkeypatch: pytest.MonkeyPatch, townlet: Program) -> None:
    monkeypatch.setattr("townlet.decide.simulate.PING_TIMEOUT", 0.5)
    found = townlet("simulate", "bandit-ads", "--url", "ws://127.0.0.1:1/ws")
    assert found.code == 2
    assert "no service answers at ws://127.0.0.1:1/ws" in found.err
    assert "townlet decide serve" in found.err


def change(kind: str, version: int, at: float, **rest: object) -> ServingChange:
    return ServingChange.model_validate(
        {"kind": kind, "version": version, "reason": f"because {version}", "at": at, "applied": True} | rest
    )


def test_consecutive_promotions_are_one_line(tmp_path: Path, townlet: Program) -> None:
    (tmp_path / VERSIONS).mkdir()
    notes = ServingLog(tmp_path / VERSIONS / SERVING_LOG)
    for version in range(1, 41):
        notes.append(partial(change, "promote", version, 1e9 + version, serving=version))
    notes.append(partial(change, "pin", 40, 1e9 + 50, serving=40, pinned=40))
    notes.append(partial(change, "promote", 41, 1e9 + 60, serving=40, pinned=40, applied=False))
    notes.append(partial(change, "gate_only", 40, 1e9 + 70, serving=40, pinned=40, gate_only=True))
    found = townlet("versions", "--folder", str(tmp_path))
    lines = found.out.splitlines()
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1e9 + 40))
    assert lines[0] == f"{at}  versions 1 to 40: promoted, 40 times: because 40"
    assert "version 40: pinned: because 40" in lines[1]
    assert "version 41: not applied" in lines[2]
    assert "gate only" in lines[3]
    assert lines[4] == "Stored: none. Serving: 40. Pinned. The gate decides alone."
    whole = json.loads(townlet("versions", "--folder", str(tmp_path), "--json").out)
    assert len(whole["history"]) == 43


def test_replay_reports_differences_only(tmp_path: Path, townlet: Program) -> None:
    service, training, clock = start_service(tmp_path)
    run_visits(service, training, clock, 60)
    service.storage.close()
    found = townlet("replay", "--folder", str(tmp_path))
    assert found.code == 0, found.err
    same = re.fullmatch(r"(\d+) of (\d+) versions are identical\.\n", found.out)
    assert same
    assert same[1] == same[2]
    assert int(same[1]) > 2


def test_replay_reports_a_version_with_other_weights(tmp_path: Path, townlet: Program) -> None:
    service, training, clock = start_service(tmp_path)
    run_visits(service, training, clock, 30)
    service.storage.write(VersionPublished(99, service.storage.trainer.step, "f" * 64))
    service.storage.close()
    found = townlet("replay", "--folder", str(tmp_path))
    assert found.code == 1
    different, summary = found.out.splitlines()
    assert re.fullmatch(r"version 99, step \d+: DIFFERENT, replayed [0-9a-f]{12}, stored f{12}", different)
    assert re.fullmatch(r"\d+ of \d+ versions are identical\.", summary)
