"""User errors: each is one message with location, cause and fix, and writes nothing."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

import warm
from cli.program import Program
from townlet.cli.options import run_command
from townlet.runs.folder import Run

FILES = {
    "broken.yaml": "env: town\nagent: [\n",
    "itself.yaml": "env: town\nextends: itself.yaml\nagent: dqn\nbudget: {env_steps: 10}\n",
    "cart.yaml": "env: CartPole-v1\nagent: dqn\nbudget: {env_steps: 10}\n",
    "typo.yaml": "env: town\nagent: {name: dqn, lrr: 1}\nbudget: {env_steps: 10}\n",
    "world.yaml": "extends: town\nmeters:\n  - {name: energy, decai: .01}\n",
}
# The root user may write everywhere; this drops the right (CAP_DAC_OVERRIDE) from the effective set.
WITHOUT_OVERRIDE = """
import ctypes, sys
from townlet.cli.app import main
libc, header, rights = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert libc.capget(header, rights) == 0
rights[0] &= ~2
assert libc.capset(header, rights) == 0
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("words", "printed", "fix"),
    [
        ("eval missing", "there is no run 'missing'", "train one first"),
        ("eval town:missing", "there is no run of town:missing", "townlet train town:missing"),
        ("play missing", "there is no world and no run 'missing'", "known: "),
        ("play twon", "there is no world and no run 'twon'", "did you mean 'town'?"),
        ("play town --mode trained", "--mode trained needs a run", "townlet play latest"),
        ("play town --mode human", "--mode human needs a keyboard", "--mode random"),
        ("train none.yaml", "there is no file 'none.yaml'", "write its path relative to "),
        ("train broken.yaml", "broken.yaml:3:1: a value is missing here", "close the bracket"),
        ("train itself.yaml", "itself.yaml:2:1: recipes extend each other in a circle", "remove one `extends`"),
        ("train cart.yaml", "cart.yaml:1:1: there is no world 'CartPole-v1'", "a shipped world, or the path"),
        ("train typo.yaml", "typo.yaml:2:20: unknown key 'lrr' in agent", "did you mean 'lr'?"),
        ("train world.yaml:dqn", "world.yaml:3:20: unknown key 'decai' in meters.energy", "did you mean 'decay'?"),
        ("train town:dqn agent", "command line: agent: this is not key=value", "write it like "),
        ("train town:dqn agent.warmup=2e5", "agent.warmup waits for 200000 transitions", "lower agent.warmup"),
        ("train town-l0:dqn init_from=missing", "there is no run 'missing'", "train one first"),
        ("train town-l0:dqn --root cart.yaml", "cart.yaml: a file of that name already", "choose another folder"),
        ("train --resume missing", "there is no run 'missing'", "train one first"),
        ("export missing", "there is no run 'missing'", "train one first"),
        ("runs compare missing absent", "there is no run 'missing'", "train one first"),
        ("runs prune --keep 0", "townlet runs prune: Invalid value for '--keep'", "townlet runs prune --help"),
        ("world check none.yaml", "there is no file 'none.yaml'", "write its path relative to "),
        ("world explain town enrgy", "has no meter 'enrgy'", "did you mean 'energy'?"),
        ("bench train cart.yaml", "there is no Gymnasium id for the world 'cart.yaml'", "known: town"),
    ],
)
def test_error_is_printed_once_with_a_fix(
    townlet: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, printed: str, fix: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    done = townlet(*words.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.count(printed) == 1
    assert fix in done.err.partition("    fix: ")[2]
    assert "Traceback" not in done.err
    assert sorted(os.listdir(tmp_path)) == sorted(FILES)  # no run was created


@pytest.mark.parametrize("verb", ["eval", "play", "export"])
def test_run_without_checkpoint_is_reported(townlet: Program, runs: Path, tmp_path: Path, verb: str) -> None:
    run = Run.open("town-ppo", runs)
    shutil.copytree(run.path, tmp_path / run.name)
    shutil.rmtree(tmp_path / run.name / "checkpoints")
    done = townlet(verb, run.name, "--root", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert f"{tmp_path / run.name}: this run has no checkpoint yet" in done.err
    assert f"townlet train --resume {tmp_path / run.name}" in done.err


def test_unwritable_folder_is_named(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    program = ["-c", WITHOUT_OVERRIDE] if os.geteuid() == 0 else ["-m", "townlet"]
    command = [sys.executable, *program, "train", "town-l0:dqn", "--root", str(locked)]
    done = warm.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert str(locked) in done.stderr
    assert "Traceback" not in done.stderr


def test_printed_commands_work_if_program_is_not_on_path(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.open("town-ppo", runs)
    monkeypatch.setattr("sys.argv", [".venv/bin/townlet", "train"])
    monkeypatch.setenv("PATH", "")
    assert run_command("play", run).startswith(f".venv/bin/townlet play {run.name}")
    monkeypatch.setattr("sys.argv", ["-m", "train"])
    assert run_command("play", run).startswith(f"townlet play {run.name}")
