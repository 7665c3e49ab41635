"""The C# compiler of Mono or .NET."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

PROJECT = """<Project Sdk="Microsoft.NET.Sdk"><PropertyGroup><OutputType>Exe</OutputType>
<TargetFramework>net8.0</TargetFramework><RollForward>Major</RollForward><LangVersion>7.3</LangVersion>
<AssemblyName>program</AssemblyName></PropertyGroup></Project>"""

MCS = ("-warn:4", "-warnaserror", "-nowarn:649")  # 649: a field that only JSON sets


def compile_csharp(sources: Sequence[Path], folder: Path) -> list[str]:
    """Compile a program; the command that runs it. Skips where no compiler is installed."""
    if (mcs := shutil.which("mcs")) and (mono := shutil.which("mono")):
        program = folder / "program.exe"
        compiler, command = [mcs, *MCS, f"-out:{program}", *map(str, sources)], [mono, str(program)]
    elif dotnet := shutil.which("dotnet"):
        (folder / "program.csproj").write_text(PROJECT, encoding="utf-8")
        for source in sources:
            shutil.copy(source, folder)
        compiler, command = [dotnet, "build", "-o", "out", str(folder)], [dotnet, str(folder / "out" / "program.dll")]
    else:
        pytest.skip("neither Mono (Debian: apt install mono-mcs) nor .NET is installed")
    done = subprocess.run(compiler, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return command
