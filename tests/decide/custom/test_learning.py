"""The file that `townlet decide new` writes learns within a minute, over real connections."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from cli.program import Program, program
from decide.service_process import TOKENS, Process

MINUTE = 60.0
BATCH = 200  # decisions per call of `simulate`


def simulate(townlet: Program, server: Process, file: str, batch: int) -> float:
    """The mean reward of simulated games."""
    words = ["--allow-code", "--url", server.address, "--games", "4", "--observations", str(BATCH // 4), "--json"]
    done = townlet("simulate", file, *words, "--seed", str(100 * batch))
    assert done.code == 0, done.err
    printed = json.loads(done.out)
    assert (printed["observations"], printed["refused"]) == (BATCH, 0)
    return float(printed["mean_reward"])


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3, 4))])
def test_new_file_learns_within_a_minute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Random actions earn .15, the best ones .49. The minute is one of serving; the service starts before it."""
    for name, token in TOKENS.items():
        monkeypatch.setenv(name, token)
    monkeypatch.chdir(tmp_path)
    townlet = program(capsys, monkeypatch, "decide")
    assert townlet("new", "my-game").code == 0
    file = str(tmp_path / "my-game.py")
    server = Process(tmp_path / "service", file, "--allow-code", f"seed={seed}").start().wait()
    try:
        rewards, started = [simulate(townlet, server, file, 0)], time.monotonic()
        while rewards[-1] < 0.4:
            assert time.monotonic() - started < MINUTE, rewards
            rewards.append(simulate(townlet, server, file, len(rewards)))
        print(f"seed {seed}: {' '.join(f'{reward:.2f}' for reward in rewards)} in {time.monotonic() - started:.0f} s")
        assert rewards[-1] > rewards[0] + 0.1
    finally:
        server.end(signal.SIGTERM)
