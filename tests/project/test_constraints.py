"""Pinned versions lie in the declared ranges and are the installed ones."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = {
    canonicalize_name(name): Version(pin)
    for name, pin in re.findall(r"^([^#\s=]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
}


def required() -> list[Requirement]:
    tested = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]
    requirements = [Requirement(line) for line in tested]
    extras = [extra for r in requirements if r.name == "townlet" for extra in r.extras]
    requirements += [Requirement(line) for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    return [r for r in requirements if r.name != "townlet"]


def test_every_requirement_is_pinned_inside_its_range() -> None:
    for requirement in required():
        assert PINS[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_pins_hold_on_every_machine_type() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    # Nothing but exact public versions: no host, no file, no local build such as +cpu.
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []


def test_installed_versions_are_the_pinned_ones() -> None:
    def installed(name: str) -> Version | None:
        try:
            return Version(Version(version(name)).public)
        except PackageNotFoundError:
            return None

    wrong = {name: found for name, pin in PINS.items() if (found := installed(name)) not in (pin, None)}
    assert wrong == {}
