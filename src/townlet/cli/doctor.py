"""`townlet doctor`: what works on this machine, what is missing and how to install it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from typing import Final

from rich.markup import escape
from rich.table import Table

from townlet.cli.console import echo, err, out
from townlet.gym import extras
from townlet.runs.videos import require_encoder


@dataclass(frozen=True)
class CheckResult:
    """State of one component: whether it works, what it provides, and how to fix it."""

    component: str
    works: bool
    state: str
    provides: str
    fix: str = ""


def _installed_version(name: str) -> str:
    """The version of a distribution; empty if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def python() -> CheckResult:
    state = f"{platform.python_version()}, {sys.executable}"
    return CheckResult("Python", sys.version_info >= (3, 11), state, "runs Townlet", "install Python 3.11 or newer")


def torch() -> CheckResult:
    provides = "training, and the torch engine"
    if not find_spec("torch"):
        return CheckResult("torch", False, "missing", provides, "pip install torch")
    import torch

    return CheckResult("torch", True, f"{torch.__version__}, {torch.get_num_threads()} threads", provides)


def cuda() -> CheckResult:
    provides = "the torch engine on a GPU"
    if not find_spec("torch"):
        return CheckResult("CUDA", False, "torch is missing", provides, "pip install torch")
    import torch

    if torch.cuda.is_available():
        return CheckResult("CUDA", True, f"{torch.version.cuda}, {torch.cuda.get_device_name()}", provides)
    if torch.version.cuda is None:
        return CheckResult(
            "CUDA", False, "torch is a CPU build", provides, "if this machine has a GPU, install a CUDA build"
        )
    return CheckResult("CUDA", False, "no GPU found", provides, "check the driver: nvidia-smi should list the GPU")


def numba() -> CheckResult:
    provides = "the CPU engine: millions of steps per second on one core"
    if not find_spec("numba"):
        return CheckResult("numba", False, "missing", provides, "pip install numba")
    installed, fix = _installed_version("numba"), "pip install --force-reinstall numba"
    try:
        from numba import njit

        works = njit(lambda x: x + 1)(1) == 2
    except Exception as error:  # a broken LLVM may raise anything
        return CheckResult("numba", False, f"{installed} fails: {error}", provides, fix)
    return CheckResult("numba", works, installed, provides, fix)


def cache() -> CheckResult:
    provides = "engine startup in about one second"
    if not find_spec("numba"):
        return CheckResult("engine cache", False, "numba is missing", provides, "pip install numba")
    from townlet.jit import cache_folder

    folder = cache_folder()
    # Any other name is that of a temporary folder, which other processes cannot find.
    if folder.name.startswith("numba-"):
        return CheckResult("engine cache", True, str(folder), provides)
    return CheckResult("engine cache", False, "no writable folder", provides, "set TOWNLET_CACHE to a writable folder")


def compiler() -> CheckResult:
    from townlet.town.engines.engine import cpp_compiler

    path = cpp_compiler()
    fix = "install one: apt install g++, or Xcode's command line tools"
    return CheckResult("C++ compiler", bool(path), path or "missing", "the compiled torch engine on the CPU", fix)


def gymnasium() -> CheckResult:
    installed, provides = _installed_version("gymnasium"), "environments; lets other libraries use the town"
    return CheckResult("gymnasium", bool(installed), installed or "missing", provides, "pip install gymnasium")


def pygame() -> CheckResult:
    provides, command = "pictures of CartPole and many others, and windows: play --window", "pip install pygame-ce"
    return _optional("pygame", ["pygame"], partial(extras.import_quietly, "pygame"), provides, command)


def ffmpeg() -> CheckResult:
    provides, command = "videos: play --video, video.episodes, publish", "pip install imageio-ffmpeg"
    return _optional("FFmpeg", ["imageio_ffmpeg"], require_encoder, provides, command)


CHECKS: Final[tuple[Callable[[], CheckResult], ...]] = (
    python, numba, cache, torch, compiler, cuda, gymnasium, pygame, ffmpeg,
)  # fmt: skip
# Extras other than environment families, and the modules that are imported where they are used.
OTHER_EXTRAS: Final = {
    "hub": ("huggingface_hub",),
    "onnx": ("onnx", "onnxscript"),
    "otel": ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter"),
    "postgres": ("psycopg",),
    "sweep": ("optuna",),
    "wandb": ("wandb",),
}
PROVIDES: Final = {
    "atari": "Atari 2600 games: ALE/Pong-v5 (ale-py is GPL-2.0-only)",
    "box2d": "landers, walkers and cars: LunarLander-v3",
    "mujoco": "articulated bodies: HalfCheetah-v5",
    "minigrid": "small grid worlds: MiniGrid-Empty-5x5-v0",
    "vizdoom": "levels of Doom: VizdoomBasic-v1",
    "retro": "games for other consoles: retro/Airstriker-Genesis-v0",
    "hub": "publishing on the Hugging Face Hub: townlet publish",
    "onnx": "export for other programs: townlet export",
    "otel": "traces of a decision service: OTEL_EXPORTER_OTLP_ENDPOINT",
    "postgres": "a decision service in several processes: townlet decide serve --storage",
    "sweep": "hyperparameter search: townlet sweep",
    "wandb": "logging to Weights & Biases: metrics.wandb=true",
}


def _extra(
    name: str, modules: Sequence[str], check: Callable[[], object], why_not_installable: str = ""
) -> CheckResult:
    return _optional(name, modules, check, PROVIDES[name], why_not_installable or f"pip install 'townlet[{name}]'")


def _import_all(modules: Sequence[str]) -> None:
    for module in modules:
        extras.import_quietly(module)


def _is_installed(module: str) -> bool:
    """Whether a module can be found; imports at most the packages that contain it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # one of those packages
        return False


def _optional(name: str, modules: Sequence[str], check: Callable[[], object], provides: str, fix: str) -> CheckResult:
    """Whether the packages of these modules, which Townlet works without, are installed and pass `check`."""
    if not all(map(_is_installed, modules)):
        return CheckResult(name, False, "missing", provides, fix)
    by_module = packages_distributions()
    owners = [owner for module in modules for owner in by_module.get(module.partition(".")[0], [])]
    installed = ", ".join(f"{owner} {_installed_version(owner)}" for owner in dict.fromkeys(owners)) or modules[0]
    try:
        check()
    except Exception as error:  # a broken package may raise anything
        reason = f"{type(error).__name__}: {error}".partition("\n")[0][:120]
        return CheckResult(name, False, f"{installed} fails: {reason}", provides, f"reinstall it: {fix}")
    return CheckResult(name, True, installed, provides)


def doctor() -> None:
    """Check the installation and show how to add what is missing."""
    with err().status("checking"):
        results = [check() for check in CHECKS]
        for f in extras.FAMILIES:
            results.append(_extra(f.extra, [f.module], partial(extras.smoke_test, f), f.why_not_installable))
        for name, modules in OTHER_EXTRAS.items():
            results.append(_extra(name, modules, partial(_import_all, modules)))
    table = Table("component", "", "state", "provides")
    for number, r in enumerate(results):
        if number == len(CHECKS):
            table.add_section()  # the extras
        failed = "[red]fails[/red]" if "fails" in r.state else "[yellow]missing[/yellow]"
        mark = "[green]works[/green]" if r.works else failed
        table.add_row(r.component, mark, escape(r.state), escape(r.provides))
    out().print(table)
    if missing := [f"{r.component}: {r.fix}" for r in results if not r.works]:
        echo("To install what is missing:", *missing)
