"""`townlet doctor`: tells what is there, and how to get what is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cli.program import Program


def test_doctor_names_every_part_and_succeeds(townlet: Program) -> None:
    done = townlet("doctor")
    assert done.code == 0
    for part in ("Python", "numba", "engine cache", "torch", "C++ compiler", "CUDA", "gymnasium", "pygame"):
        assert part in done.out


def test_doctor_says_how_to_get_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "TOWNLET_CACHE": str(tmp_path / "file" / "below")}
    command = [sys.executable, "-m", "townlet", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert "C++ compiler: install one" in done.stdout
    assert "engine cache: set TOWNLET_CACHE" in done.stdout
