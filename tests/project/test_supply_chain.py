"""Recorded hashes cover every pin, and an archive or an installed file that differs from them is found."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from importlib.metadata import Distribution, PathDistribution, distribution
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = spec_from_file_location("supply_chain", ROOT / "tools" / "supply_chain.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["supply_chain"] = module
    spec.loader.exec_module(module)
    return module


def test_every_pin_has_recorded_hashes(tool: ModuleType) -> None:
    pins = re.findall(r"^([^#\s=]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    known = tool.recorded_hashes()
    assert len(pins) > 100
    assert [pin for pin in pins if not known.get((canonicalize_name(pin[0]), pin[1]))] == [], "run `make lock`"


def test_the_audit_tools_have_recorded_hashes(tool: ModuleType) -> None:
    names = {name for (name, _), hashes in tool.recorded_hashes(tool.AUDIT).items() if hashes}
    assert set(tool.TOOLS) <= names


def test_an_archive_with_another_hash_is_rejected_and_a_custom_build_of_torch_is_reported(
    tool: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tool.recorded_hashes()
    (version,) = (v for name, v in known if name == "rich")
    (torch,) = (v for name, v in known if name == "torch")
    good = tool.Archive("rich", version, min(known["rich", version]))
    custom = tool.Archive("torch", f"{torch}+cpu", "0" * 64)
    assert tool.check_archives([good, custom]) == ([good], [custom])
    for forged in (good._replace(sha256="1" * 64), custom._replace(version=torch), good._replace(name="ritch")):
        with pytest.raises(SystemExit, match="do not install these"):
            tool.check_archives([good, forged])
        assert f"{forged.name} {forged.version}: sha256 {forged.sha256} is not recorded" in capsys.readouterr().out


def copy_package(name: str, folder: Path) -> Distribution:
    """Copy an installed package to a folder."""
    for file in distribution(name).files or ():
        if "__pycache__" not in file.parts and not str(file).startswith(".."):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), folder / file)
    return PathDistribution(next(folder.glob("*.dist-info")))


def test_changed_and_removed_installed_files_are_found(tool: ModuleType, tmp_path: Path) -> None:
    copy = copy_package("iniconfig", tmp_path)
    assert list(tool.altered_files(copy)) == []
    with (tmp_path / "iniconfig" / "__init__.py").open("a") as file:
        file.write("\n")
    (tmp_path / "iniconfig" / "exceptions.py").unlink()
    found = list(tool.altered_files(copy))
    assert len(found) == 2
    assert "iniconfig: iniconfig/__init__.py was changed or removed" in found[0]


def test_all_requirements_of_an_extra_are_found(tool: ModuleType) -> None:
    needed = " ".join(tool.requirements(["test"]))
    for name in ("hatchling", "torch", "ale-py", "pytest", "wandb"):
        assert re.search(rf"\b{name}\b", needed), name


def test_actions_are_pinned_by_commit() -> None:
    """A tag can be moved to other code."""
    used = [line for path in (ROOT / ".github/workflows").glob("*.yml") for line in path.read_text().splitlines()]
    used = [line.partition("uses:")[2].strip() for line in used if "uses:" in line]
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v[0-9.]+", action)] == []


def test_packages_whose_internals_are_overridden_have_an_upper_bound() -> None:
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    bounded = {line.partition(">=")[0] for line in lines if ",<" in line}
    assert {"fastapi", "starlette", "uvicorn", "websockets", "h11"} <= bounded
