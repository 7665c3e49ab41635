"""Licenses: the docs name every package of the default install or of an extra whose license is not permissive."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OWN_USE = {"bench", "docs", "test"}  # extras for those who work on Townlet itself
PERMISSIVE = {
    "0BSD", "APACHE", "APACHE-2.0", "APACHE-2.0 WITH LLVM-EXCEPTION", "BSD", "BSD-2-CLAUSE", "BSD-3-CLAUSE", "BSL-1.0",
    "CC0-1.0", "ISC", "MIT", "MIT-CMU", "PSF", "PSF-2.0", "ZLIB",
}  # fmt: skip
# Texts and classifiers of packages without a license expression, by the words that are in them.
WORDS = {
    "APACHE": r"apache", "BSD": r"\bbsd\b", "MIT": r"\bmit\b", "ISC": r"\bisc", "PSF": r"python software foundation",
    "ZLIB": r"\bzlib\b", "MPL-2.0": r"mozilla|\bmpl\b",
    "LGPL": r"lesser general|\blgpl", "GPL": r"(?<!lesser )general public|\bgpl",
}  # fmt: skip


def licenses(found: Distribution) -> set[str]:
    """The licenses that a package states: its expression's parts, else its classifiers, else the text's first line."""
    stated = found.metadata["License-Expression"]
    if stated:
        return {part.strip(" ()").upper() for part in re.split(r"\bAND\b|\bOR\b", stated)}
    classifiers = [c for c in found.metadata.get_all("Classifier", []) if c.startswith("License ::")]
    text = " ".join(classifiers) or (found.metadata["License"] or "").partition("\n")[0]
    return {name for name, words in WORDS.items() if re.search(words, text, re.IGNORECASE)}


def permissive(found: Distribution) -> bool:
    return bool(stated := licenses(found)) and stated <= PERMISSIVE


def closure(lines: list[str]) -> dict[str, Distribution]:
    """All installed packages that some requirements need here, with what these need in turn, by name."""
    known: dict[str, Distribution] = {}
    asked, waiting = set(), [(Requirement(line), "") for line in lines]
    while waiting:
        need, extra = waiting.pop()
        if need.marker and not need.marker.evaluate({"extra": extra}):
            continue
        for inner in ("", *need.extras):
            name = canonicalize_name(need.name)
            if (name, inner) in asked:
                continue
            asked.add((name, inner))
            try:
                known[name] = distribution(need.name)
            except PackageNotFoundError:
                continue
            waiting += [(Requirement(line), inner) for line in known[name].requires or ()]
    return known


def not_permissive(lines: list[str]) -> set[str]:
    """NVIDIA's libraries, which the CUDA builds of torch bring, are left out; docs/gym.md names them."""
    needed = {n: d for n, d in closure(lines).items() if not n.startswith(("nvidia-", "cuda-"))}
    return {name for name, found in needed.items() if not permissive(found)}


def documented(part: str) -> set[str]:
    """The packages in the table of docs/gym.md whose first column names `part`."""
    lines = (ROOT / "docs" / "gym.md").read_text(encoding="utf-8").partition("## Licenses")[2].splitlines()
    rows = [[cell.strip(" `") for cell in line.split("|")] for line in lines if line.startswith("|")]
    return {row[2] for row in rows if re.search(rf"\b{part}\b", row[1])}


def test_the_default_install_has_permissive_licenses_only_but_for_pictures_and_videos() -> None:
    assert {"numpy", "torch", "fastapi", "starlette"} <= closure(PROJECT["dependencies"]).keys()
    # imageio-ffmpeg states its own license, which is permissive, and not that of the FFmpeg program in its wheel.
    assert not_permissive(PROJECT["dependencies"]) | {"imageio-ffmpeg"} == documented("default install")
    assert documented("default install") == {"pygame-ce", "imageio-ffmpeg"}


@pytest.mark.parametrize("extra", sorted(PROJECT["optional-dependencies"].keys() - OWN_USE))
def test_the_docs_name_every_package_of_an_extra_that_is_not_permissive(extra: str) -> None:
    added = not_permissive(PROJECT["optional-dependencies"][extra]) - not_permissive(PROJECT["dependencies"])
    assert added <= documented(extra)


@pytest.mark.parametrize("file", ["docs/install.md", "docs/gym.md", "pyproject.toml", "src/townlet/cli/doctor.py"])
def test_the_license_of_ale_py_is_stated_where_it_is_offered(file: str) -> None:
    assert re.search(r"ale-py[^\n]*GPL-2\.0-only", (ROOT / file).read_text(encoding="utf-8"))
