"""`townlet doctor`: what works here, what is missing, what it would add and how to get it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec

from rich.markup import escape
from rich.table import Table

from townlet.cli.console import err, out
from townlet.gym import extras
from townlet.gym.extras import EnvFamily

MISSING = "[yellow]missing[/yellow]"


@dataclass(frozen=True)
class CheckResult:
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


def python() -> CheckResult:
    state = f"{platform.python_version()}, {sys.executable}"
    return CheckResult("Python", sys.version_info >= (3, 11), state, "runs Townlet", "install Python 3.11 or newer")


def torch() -> CheckResult:
    adds = "the tensor engine and batched environments"
    if not find_spec("torch"):
        return CheckResult("torch", False, "missing", adds, "pip install torch")
    import torch

    return CheckResult("torch", True, f"{torch.__version__}, {torch.get_num_threads()} threads", adds)


def cuda() -> CheckResult:
    adds = "the tensor engine on a GPU"
    if not find_spec("torch"):
        return CheckResult("CUDA", False, "torch is missing", adds, "pip install torch")
    import torch

    if torch.cuda.is_available():
        return CheckResult("CUDA", True, f"{torch.version.cuda}, {torch.cuda.get_device_name()}", adds)
    if torch.version.cuda is None:
        return CheckResult(
            "CUDA", False, "this torch is built for CPU", adds, "where there is a GPU, install a CUDA torch"
        )
    return CheckResult("CUDA", False, "no GPU is seen", adds, "check the driver: nvidia-smi should list the GPU")


def numba() -> CheckResult:
    adds = "the CPU engine: millions of steps a second on one core"
    if not find_spec("numba"):
        return CheckResult("numba", False, "missing", adds, "pip install numba")
    found, fix = _package("numba"), "pip install --force-reinstall numba"
    try:
        from numba import njit

        works = njit(lambda x: x + 1)(1) == 2
    except Exception as error:  # whatever a broken LLVM raises, the doctor reports it and goes on
        return CheckResult("numba", False, f"{found} fails: {error}", adds, fix)
    return CheckResult("numba", works, found, adds, fix)


def cache() -> CheckResult:
    adds = "engines that start in a second instead of many"
    if not find_spec("numba"):
        return CheckResult("engine cache", False, "numba is missing", adds, "pip install numba")
    from townlet.jit import cache_folder

    place = cache_folder()
    # Where nothing lasting can be written, a folder is made that no later process will find.
    if place.name.startswith("numba-"):
        return CheckResult("engine cache", True, str(place), adds)
    fix = "set TOWNLET_CACHE to a folder that you may write to"
    return CheckResult("engine cache", False, "no folder that lasts", adds, fix)


def compiler() -> CheckResult:
    from townlet.town.engines.engine import cpp_compiler

    found = cpp_compiler()
    fix = "install one: apt install g++, or Xcode's command line tools"
    return CheckResult("C++ compiler", bool(found), found or "missing", "the compiled tensor engine on CPU", fix)


def gymnasium() -> CheckResult:
    found = _package("gymnasium")
    fix = "pip install gymnasium"
    return CheckResult(
        "gymnasium", bool(found), found or "missing", "environments, and the town for other libraries", fix
    )


CHECKS: tuple[Callable[[], CheckResult], ...] = (python, numba, cache, torch, compiler, cuda, gymnasium)


def _family(family: EnvFamily) -> CheckResult:
    """A family of environments: one of them is made and stepped."""
    return _extra(family.extra, family.module, lambda: extras.smoke_test(family), family.install_problem)


def _ffmpeg() -> None:
    import imageio_ffmpeg

    imageio_ffmpeg.get_ffmpeg_version()


# Extras beside the families: what is imported, and what shows that it works where importing does not.
OTHERS: dict[str, tuple[str, Callable[[], object]]] = {
    "hub": ("huggingface_hub", lambda: extras.import_quietly("huggingface_hub")),
    "onnx": ("onnxscript", lambda: extras.import_quietly("onnxscript")),
    "sweep": ("optuna", lambda: extras.import_quietly("optuna")),
    "video": ("imageio_ffmpeg", _ffmpeg),
    "wandb": ("wandb", lambda: extras.import_quietly("wandb")),
    "window": ("pygame", lambda: extras.import_quietly("pygame")),
}
ADDS = {
    "atari": "games of the Atari 2600: ALE/Pong-v5 (ale-py is GPL-2.0-only)",
    "box2d": "landers, walkers and cars: LunarLander-v3",
    "mujoco": "bodies with joints: HalfCheetah-v5",
    "minigrid": "small grid worlds: MiniGrid-Empty-5x5-v0",
    "vizdoom": "levels of Doom: VizdoomBasic-v1",
    "retro": "games of other consoles: retro/Airstriker-Genesis-v0",
    "hub": "models for others on the Hugging Face Hub",
    "onnx": "agents for other programs: townlet export",
    "sweep": "the search for settings: townlet sweep",
    "video": "films of episodes as mp4",
    "wandb": "runs on Weights & Biases: metrics.wandb=true",
    "window": 'a window: render_mode="human"',
}


def _extra(name: str, module: str, try_out: Callable[[], object], unfit: str = "") -> CheckResult:
    """Whether an extra is installed, and really works; `unfit` says why it cannot be installed like the others."""
    adds, fix = ADDS[name], unfit or f"pip install 'townlet[{name}]'"
    if not find_spec(module):
        return CheckResult(name, False, "missing", adds, fix)
    owners = packages_distributions().get(module, [])
    found = ", ".join(f"{owner} {_package(owner)}" for owner in dict.fromkeys(owners)) or module
    try:
        try_out()
    except Exception as error:  # whatever a broken package raises, the doctor reports it and goes on
        said = f"{type(error).__name__}: {error}".partition("\n")[0][:120]
        return CheckResult(name, False, f"{found} fails: {said}", adds, f"install it anew: {fix}")
    return CheckResult(name, True, found, adds)


def _extras() -> list[CheckResult]:
    """Every extra, in the order of the project's file."""
    found = [_family(family) for family in extras.FAMILIES]
    return [*found, *(_extra(name, module, try_out) for name, (module, try_out) in OTHERS.items())]


def doctor() -> None:
    """Say what works here, what is missing and how to get it."""
    console = out()
    with err().status("examining"):
        findings = [*(check() for check in CHECKS), *_extras()]
    table = Table("part", "", "state", "what it adds")
    for f in findings:
        mark = "[green]works[/green]" if f.works else "[red]fails[/red]" if "fails" in f.state else MISSING
        table.add_row(f.part, mark, escape(f.state), escape(f.adds))
    console.print(table)
    for f in findings:
        if not f.works:
            console.print(f"{f.part}: {f.fix}", markup=False, soft_wrap=True)
