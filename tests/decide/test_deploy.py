"""The files in deploy/: units for systemd, the load balancer, and the table of storage figures."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from websockets.sync.client import connect

from decide.ads_service import request
from decide.service_process import GAME, Process, free_port
from decide.test_commands import Captured

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(path.name for path in DEPLOY.glob("*.service"))
REQUIRED = {"NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=yes", "Restart=on-failure", "DynamicUser=yes"}
EXPOSURE = 20  # tenths, by `systemd-analyze security`: 0 is best, 100 worst
PATIENT = 60.0


def test_units_are_hardened_and_take_secrets_from_a_file() -> None:
    assert UNITS == ["decide@.service", "learn.service"]
    for name in UNITS:
        lines = (DEPLOY / name).read_text(encoding="utf-8").splitlines()
        assert set(lines) >= REQUIRED
        assert "EnvironmentFile=/etc/townlet/secrets.env" in lines
        assert not any("TOKEN" in line or "PASSWORD" in line for line in lines)
    secrets = (DEPLOY / "secrets.env").read_text(encoding="utf-8")
    assert re.findall(r"^([A-Z_]+)=(.*)$", secrets, re.MULTILINE) == [
        ("TOWNLET_GAME_TOKEN", ""), ("TOWNLET_OPERATOR_TOKEN", ""), ("TOWNLET_VIEWER_TOKEN", ""), ("PGPASSWORD", ""),
    ]  # fmt: skip


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("name", UNITS)
def test_units_pass_systemd_analyze(tmp_path: Path, name: str) -> None:
    program = shutil.which("true")
    text = (DEPLOY / name).read_text(encoding="utf-8").replace("/opt/townlet/bin/townlet", str(program))
    unit = tmp_path / name.replace("@", "@8781")
    unit.write_text(text, encoding="utf-8")
    for command in (["verify", "--man=no"], ["security", "--offline=true", f"--threshold={EXPOSURE}"]):
        done = subprocess.run(["systemd-analyze", *command, str(unit)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert unit.name not in done.stderr, done.stderr


def test_the_command_of_the_units_exists(tmp_path: Path) -> None:
    """Every option is one of `serve`: it fails only because there is no such database."""
    pytest.importorskip("psycopg")
    for name in UNITS:
        (command,) = re.findall(r"^ExecStart=\S+ decide serve (.+)$", (DEPLOY / name).read_text(), re.MULTILINE)
        values = {
            "${TOWNLET_SETTINGS}": "hive", "${TOWNLET_STORAGE}": "postgresql://townlet@127.0.0.1:1/none",
            "${TOWNLET_HOST}": "127.0.0.1", "%i": str(free_port()), "8790": str(free_port()),
        }  # fmt: skip
        service = Captured(tmp_path / name, "hive")
        service._words = [values.get(word, word) for word in command.split()]
        service.start()
        assert service.process is not None
        assert service.process.wait(PATIENT) == 2
        (line,) = [json.loads(line) for line in service.words.splitlines()]
        assert (line["level"], "cannot be used" in line["message"]) == ("error", True)


@pytest.mark.skipif(not shutil.which("haproxy"), reason="needs haproxy")
def test_games_play_through_the_load_balancer(tmp_path: Path) -> None:
    service = Process(tmp_path / "service", "bandit-ads", "learning.interval=3600").start().wait()
    port, silent = free_port(), free_port()
    text = (DEPLOY / "haproxy.cfg").read_text(encoding="utf-8")
    text = re.sub(r"bind .*", f"bind 127.0.0.1:{port}", text).replace("maxconn 20000", "maxconn 100")
    text = text.replace("127.0.0.1:8781", f"127.0.0.1:{service.port}").replace("127.0.0.1:8782", f"127.0.0.1:{silent}")
    config = tmp_path / "haproxy.cfg"
    config.write_text(text, encoding="utf-8")
    balancer = subprocess.Popen(["haproxy", "-db", "-f", str(config)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + PATIENT
        while True:
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=10) as answer:
                    assert answer.status == 200
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.1)
        for second in range(6):
            with connect(f"ws://127.0.0.1:{port}/ws?token={GAME}", proxy=None) as socket:
                socket.send(json.dumps(request(float(second))))
                assert json.loads(socket.recv(20))["type"] in ("ad_decision", "no_ad")
        for path in ("/", "/api/decide/versions", "/metrics"):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(f"{address}{path}", timeout=10)
    finally:
        balancer.terminate()
        balancer.communicate(timeout=30)
        service.end(signal.SIGTERM)
