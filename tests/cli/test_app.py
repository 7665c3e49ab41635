"""The program as a whole: help, version, exit codes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest

import warm
from cli.program import COMMANDS, LEAF_COMMANDS, Program


def test_all_commands_exist() -> None:
    assert {" ".join(words) for words in LEAF_COMMANDS} == {
        "train", "sweep", "eval", "play", "live", "lesson", "export", "publish", "recipes", "doctor", "bench sim",
        "bench train",
        *(f"runs {verb}" for verb in ("list", "show", "compare", "export", "verify", "prune")),
        *(f"decide {verb}" for verb in ("new", "serve", "simulate", "versions", "replay", "verify", "backup", "copy")),
        *(f"world {verb}" for verb in ("list", "check", "show", "explain", "new", "schema")),
    }  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(("townlet", *words)))
def test_help_describes_every_argument_and_option(
    townlet: Program, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = townlet(*words, "--help")
    assert done.code == 0
    assert done.out.startswith(f"Usage: {' '.join(('townlet', *words))} ")
    assert max(map(len, done.out.splitlines())) <= 80
    assert not re.search(r"<\w+>|\bstr\b|\bint\b|float|bool|list\[|None|Path|\[x|>=|StrEnum", done.out)
    printed = " ".join(done.out.split())
    for param in (one for one in COMMANDS[words].params if not getattr(one, "hidden", False)):
        assert len(param.help) > 10, param.name
        assert all(name in printed for name in param.opts if name.startswith("--"))
        choices = param.type_descriptor.choices or ()
        assert all(str(choice) in printed for choice in choices), param.name
    if words in LEAF_COMMANDS:
        assert f"$ townlet {' '.join(words)}" in done.out
    for name, below in getattr(COMMANDS[words], "commands", {}).items():
        assert re.search(rf"^  {name} +[A-Z].*\.$", done.out, re.MULTILINE), f"{name} is not printed in one line"
        assert below.help.partition("\n")[0] in printed


def test_help_shows_metavars_instead_of_types(townlet: Program) -> None:
    printed = townlet("live", "--help").out
    assert "--host HOST " in printed
    assert "--port N " in printed
    assert "--root FOLDER " in printed


def test_command_group_without_command_prints_its_help(townlet: Program) -> None:
    for words in ((), ("world",), ("runs",), ("bench",), ("decide",)):
        assert townlet(*words).out == townlet(*words, "--help").out != ""


def test_version_matches_the_package(townlet: Program) -> None:
    done = townlet("--version")
    assert (done.code, done.out) == (0, f"townlet {version('townlet')}\n")


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["fly"], "townlet: No such command 'fly'."),
        (["world", "chek"], "townlet world: No such command 'chek'. Did you mean 'check'"),
        (["world", "list", "--nope"], "townlet world list: No such option: --nope"),
        (["bench", "sim", "--rows", "0"], "townlet bench sim: Invalid value for '--rows': it should be greater"),
        (["eval", "latest", "--episodes", "0"], "townlet eval: Invalid value for '--episodes': it should be greater"),
        (["eval"], "townlet eval: Missing argument 'RUN'."),
        (
            ["export", "latest", "--format", "h5"],
            "Invalid value for '--format': 'h5' is not one of 'safetensors', 'onnx'.",
        ),
        (["train", "--resume"], "Option '--resume' requires an argument."),
    ],
)
def test_usage_errors_are_one_message_with_location_and_fix(townlet: Program, words: list[str], printed: str) -> None:
    done = townlet(*words)
    assert (done.code, done.out) == (2, "")
    message, fix = done.err.splitlines()
    assert printed in message
    assert re.fullmatch(r"    fix: see `townlet[a-z ]* --help`", fix)


def test_unknown_world_is_reported_without_traceback() -> None:
    command = [sys.executable, "-m", "townlet", "world", "show", "twon"]
    done = warm.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "there is no world 'twon'" in done.stderr
    assert "did you mean 'town'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_interrupt_exits_with_130() -> None:
    command = [sys.executable, "-m", "townlet", "bench", "sim", "town", "--rows", "1", "--seconds", "120", "--json"]
    process = warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _wait_until_busy(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err


def _wait_until_busy(pid: int, seconds: float = 110) -> None:
    """Wait for 2 s of CPU time: before, kernels are loaded in callbacks that swallow interrupts."""
    deadline, stat = time.monotonic() + seconds, Path(f"/proc/{pid}/stat")
    if not stat.exists():
        pytest.skip("needs /proc to see how long the program has computed")
    while time.monotonic() < deadline:
        computed = sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
        if computed > 2:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the program did not begin to measure")


def test_closed_stdout_does_not_crash() -> None:
    done = subprocess.run(f"{sys.executable} -m townlet world list >&-", shell=True, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full to write to")
def test_full_disk_is_one_message() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "townlet", "world", "list"]
        done = warm.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_output_survives_an_ascii_terminal() -> None:
    command = [sys.executable, "-m", "townlet", "world", "show", "town"]
    settings = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=settings)
    assert done.returncode == 0
    assert "satiation" in done.stdout
