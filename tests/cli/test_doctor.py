"""`townlet doctor`: reports what is installed, and how to install what is missing."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

import warm
from cli.program import Program
from townlet.cli import doctor
from townlet.gym.extras import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
PARTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
EXTRAS = sorted(set(PARTS) - {"bench", "test"})


def test_doctor_reports_every_component_and_extra(townlet: Program) -> None:
    done = townlet("doctor")
    assert done.code == 0
    for part in ("Python", "numba", "engine cache", "torch", "C++ compiler", "CUDA", "gymnasium"):
        assert part in done.out
    for extra in EXTRAS:
        module = next((f.module for f in FAMILIES if f.extra == extra), None) or doctor.OTHER_EXTRAS[extra][0]
        state = "works" if find_spec(module) else "missing"
        assert re.search(rf"│ {extra} +│ {state} ", done.out), extra
        assert state == "works" or f"\n{extra}: " in done.out


def test_doctor_distinguishes_broken_from_missing_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    hollow = ModuleType("imageio_ffmpeg")
    hollow.__spec__ = ModuleSpec("imageio_ffmpeg", None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", hollow)  # installed, but empty
    found = doctor._extra("video", "imageio_ffmpeg", doctor._ffmpeg)
    assert not found.works
    assert "fails: AttributeError" in found.state


def test_doctor_shows_how_to_install_missing_components(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "TOWNLET_CACHE": str(tmp_path / "file" / "below")}
    command = [sys.executable, "-m", "townlet", "doctor"]
    done = warm.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert "C++ compiler: install one" in done.stdout
    assert "engine cache: set TOWNLET_CACHE" in done.stdout
