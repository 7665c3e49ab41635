"""`townlet doctor`: what works here, what is missing, what it would add and how to get it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from rich.markup import escape
from rich.table import Table

from townlet.cli.console import err, out


@dataclass(frozen=True)
class Finding:
    """One part of the installation: whether it works, what it is for, and the way to it."""

    part: str
    works: bool
    state: str
    adds: str
    fix: str = ""


def _package(name: str) -> str:
    """The installed version of a distribution, or nothing."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def python() -> Finding:
    state = f"{platform.python_version()}, {sys.executable}"
    return Finding("Python", sys.version_info >= (3, 11), state, "runs Townlet", "install Python 3.11 or newer")


def torch() -> Finding:
    adds = "the tensor engine and batched environments"
    if not find_spec("torch"):
        return Finding("torch", False, "missing", adds, "pip install torch")
    import torch

    return Finding("torch", True, f"{torch.__version__}, {torch.get_num_threads()} threads", adds)


def cuda() -> Finding:
    adds = "the tensor engine on a GPU"
    if not find_spec("torch"):
        return Finding("CUDA", False, "torch is missing", adds, "pip install torch")
    import torch

    if torch.cuda.is_available():
        return Finding("CUDA", True, f"{torch.version.cuda}, {torch.cuda.get_device_name()}", adds)
    if torch.version.cuda is None:
        return Finding("CUDA", False, "this torch is built for CPU", adds, "where there is a GPU, install a CUDA torch")
    return Finding("CUDA", False, "no GPU is seen", adds, "check the driver: nvidia-smi should list the GPU")


def numba() -> Finding:
    adds = "the CPU engine: millions of steps a second on one core"
    if not find_spec("numba"):
        return Finding("numba", False, "missing", adds, "pip install numba")
    found, fix = _package("numba"), "pip install --force-reinstall numba"
    try:
        from numba import njit

        works = njit(lambda x: x + 1)(1) == 2
    except Exception as error:  # whatever a broken LLVM raises, the doctor reports it and goes on
        return Finding("numba", False, f"{found} fails: {error}", adds, fix)
    return Finding("numba", works, found, adds, fix)


def cache() -> Finding:
    adds = "engines that start in a second instead of many"
    if not find_spec("numba"):
        return Finding("engine cache", False, "numba is missing", adds, "pip install numba")
    from townlet.sim.cpu.kernel import cache_folder

    place = cache_folder()
    # Where nothing lasting can be written, a folder is made that no later process will find.
    if place.name.startswith("numba-"):
        return Finding("engine cache", True, str(place), adds)
    fix = "set TOWNLET_CACHE to a folder that you may write to"
    return Finding("engine cache", False, "no folder that lasts", adds, fix)


def compiler() -> Finding:
    from townlet.sim.engines import cpp_compiler

    found = cpp_compiler()
    fix = "install one: apt install g++, or Xcode's command line tools"
    return Finding("C++ compiler", bool(found), found or "missing", "the compiled tensor engine on CPU", fix)


def _optional(part: str, distribution: str, adds: str, fix: str) -> Finding:
    found = _package(distribution)
    return Finding(part, bool(found), found or "missing", adds, fix)


def gymnasium() -> Finding:
    return _optional("gymnasium", "gymnasium", "the town for other libraries: Townlet/Town-v0", "pip install gymnasium")


def pygame() -> Finding:
    return _optional("pygame", "pygame", 'a window: render_mode="human"', "pip install 'townlet[window]'")


def onnx() -> Finding:
    return _optional("onnx", "onnx", "agents for other programs: townlet export", "pip install 'townlet[onnx]'")


def video() -> Finding:
    adds = "videos: video.episodes=1, townlet play --video"
    return _optional("imageio-ffmpeg", "imageio-ffmpeg", adds, "pip install 'townlet[video]'")


def hub() -> Finding:
    adds = "agents for others: townlet publish --to hub:user/name"
    return _optional("huggingface-hub", "huggingface-hub", adds, "pip install 'townlet[hub]'")


CHECKS: tuple[Callable[[], Finding], ...] = (
    python, numba, cache, torch, compiler, cuda, gymnasium, pygame, onnx, video, hub,
)  # fmt: skip


def doctor() -> None:
    """Say what works here, what is missing and how to get it."""
    console = out()
    with err().status("examining"):
        findings = [check() for check in CHECKS]
    table = Table("part", "", "state", "what it adds")
    for f in findings:
        mark = "[green]works[/green]" if f.works else "[yellow]missing[/yellow]"
        table.add_row(f.part, mark, escape(f.state), escape(f.adds))
    console.print(table)
    for f in findings:
        if not f.works:
            console.print(f"{f.part}: {f.fix}", markup=False, soft_wrap=True)
