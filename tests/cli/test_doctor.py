"""`townlet doctor`: reports what is installed, and how to install what is missing."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import imageio_ffmpeg
import pytest

import warm
from cli.program import Program
from townlet.cli import doctor
from townlet.gym.extras import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
PARTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
EXTRAS = sorted(set(PARTS) - {"bench", "docs", "test"})


def test_doctor_reports_every_component_and_extra(townlet: Program) -> None:
    done = townlet("doctor")
    assert done.code == 0
    for part in ("Python", "numba", "engine cache", "torch", "C++ compiler", "CUDA", "gymnasium", "pygame", "FFmpeg"):
        assert part in done.out
    for extra in EXTRAS:
        family = next((f.module for f in FAMILIES if f.extra == extra), None)
        modules = [family] if family else doctor.OTHER_EXTRAS[extra]
        state = "works" if all(map(find_spec, modules)) else "missing"
        assert re.search(rf"│ {extra} +│ {state} ", done.out), extra
        assert state == "works" or f"\n{extra}: " in done.out


def test_doctor_distinguishes_broken_from_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise RuntimeError("No ffmpeg exe could be found.")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", fail)  # installed, but without its program
    found = doctor.ffmpeg()
    assert not found.works
    assert "fails: TownletError: a video needs FFmpeg" in found.state
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    found = doctor.ffmpeg()
    assert (found.works, found.state, found.fix) == (False, "missing", "pip install imageio-ffmpeg")
    assert "play --video" in found.provides


def test_an_extra_without_one_of_its_packages_is_missing(townlet: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other packages install parts of it: fastapi brings the API of OpenTelemetry, without the exporter of traces."""
    exporter = "opentelemetry.exporter"
    for name in [name for name in sys.modules if name.startswith(exporter)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, exporter, None)
    done = townlet("doctor")
    assert re.search(r"│ otel +│ missing ", done.out)
    assert "\notel: pip install 'townlet[otel]'" in done.out


def test_doctor_shows_how_to_install_missing_components(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "TOWNLET_CACHE": str(tmp_path / "file" / "below")}
    command = [sys.executable, "-m", "townlet", "doctor"]
    done = warm.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert "C++ compiler: install one" in done.stdout
    assert "engine cache: set TOWNLET_CACHE" in done.stdout
