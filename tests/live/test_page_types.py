"""Type check of the page's JavaScript."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from townlet.live.app import STATIC


def compiler() -> list[str] | None:
    """The TypeScript compiler: on PATH, or below NODE_PATH."""
    if found := shutil.which("tsc"):
        return [found]
    node = shutil.which("node")
    for folder in filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep)):
        script = Path(folder) / "typescript" / "bin" / "tsc"
        if node and script.is_file():
            return [node, str(script)]
    return None


def test_javascript_types() -> None:
    command = compiler()
    if command is None:
        pytest.skip("TypeScript is not installed (npm install --global typescript, or NODE_PATH)")
    result = subprocess.run(
        [*command, "--noEmit", "--project", str(STATIC / "jsconfig.json")], capture_output=True, text=True, timeout=120
    )
    assert (result.returncode, result.stdout) == (0, "")
