"""The wheel, installed without the source tree, runs the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _run(*command: str | Path, cwd: Path) -> str:
    # This environment must not leak into the clean one.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long(minutes=3)
def test_the_wheel_runs_the_demo_in_a_clean_environment(tmp_path: Path) -> None:
    _run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("townlet-*.whl")
    _run(sys.executable, "-m", "venv", tmp_path / "clean", cwd=tmp_path)
    python = tmp_path / "clean" / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel, cwd=tmp_path)

    assert str(tmp_path) in _run(python, "-c", "import townlet; print(townlet.__file__)", cwd=tmp_path)
    program = tmp_path / "clean" / "bin" / "townlet"
    assert "town-foggy" in _run(program, "world", "list", cwd=tmp_path)
    _run(program, "world", "new", "mine", cwd=tmp_path)
    assert "mine is a valid world" in _run(program, "world", "check", "mine.yaml", cwd=tmp_path)
    assert "random" in _run(program, "play", "town", cwd=tmp_path)
    _run(program, "doctor", cwd=tmp_path)
    page = "from townlet.decide.app import STATIC; print((STATIC / 'decide.html').is_file())"
    assert _run(python, "-c", page, cwd=tmp_path).strip() == "True"
