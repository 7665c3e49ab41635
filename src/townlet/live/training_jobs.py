"""Trainings that the operator starts on the page: each is a process of its own and leaves an ordinary run."""

from __future__ import annotations

import secrets
import signal
import subprocess
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from fastapi import APIRouter, Request
from pydantic import Field

from townlet.child_processes import townlet_command
from townlet.errors import TownletError
from townlet.live.messages import Message
from townlet.live.world_editing import free_name, require_valid_world, save_world, store_world
from townlet.recipes.catalog import find_layers, read_variants
from townlet.recipes.load import load_recipe
from townlet.runs.overview import Overview, list_overviews
from townlet.runs.provenance import this_machine
from townlet.tasks.experiment import load_experiment
from townlet.town.world.load import shipped
from townlet.web.guard import role_of
from townlet.web.limits import SingleFlightCache
from townlet.web.tokens import OPERATOR

MAX_STEPS: Final = 2e7
MAX_MINUTES: Final = 30
MAX_RUNNING: Final = 1
MIN_SECONDS: Final = 10.0  # of a training whose speed counts: a shorter one is mostly preparation
MAX_MEASURED: Final = 5  # newest trainings of a variant whose speed counts
SPEED_SECONDS: Final = 30.0  # how long measured speeds are kept
STOP_SECONDS: Final = 8.0  # in which a stopped training saves its run
FIX: Final = "fix: "  # begins the line after an error
ERROR_CHARACTERS: Final = 600  # of a failed training's output that are shown


class TrainRequest(Message):
    """Request to train an agent in an edited world, or in a shipped one."""

    world: str = Field(min_length=1, max_length=40, description="Name of the world; an edited one is saved under it.")
    text: str | None = Field(None, max_length=120_000, description="Text of the edited world; null for a shipped one.")
    variant: str = Field(min_length=1, max_length=40, description="Variant of the world's recipe.")
    env_steps: int = Field(ge=1000, le=MAX_STEPS, description="Budget in env_steps.")


@dataclass
class Job:
    """A training process. `run` is the name of its run once that exists."""

    id: str
    title: str
    env_steps: int
    process: subprocess.Popen[str]
    run: str | None = None
    stopped: bool = False
    last_error: str = ""  # last line of its error output: the message, also after a traceback

    @property
    def state(self) -> str:
        """running, finished, stopped or failed."""
        code = self.process.poll()
        if code is None:
            return "running"
        if self.stopped:
            return "stopped"
        return "finished" if code == 0 else "failed"

    def as_json(self, *, with_errors: bool = True) -> dict[str, Any]:
        """The error is left out for viewers: it may contain paths of this machine."""
        error = self.last_error[:ERROR_CHARACTERS] if with_errors and self.state == "failed" else ""
        return {
            "id": self.id, "title": self.title, "env_steps": self.env_steps, "run": self.run, "state": self.state,
            "error": error,
        }  # fmt: skip

    def read_output(self) -> None:
        """Read its output in threads, as it comes."""
        for read in (self._read_run, self._read_errors):
            threading.Thread(target=read, daemon=True).start()

    def _read_run(self) -> None:
        """The first line of output is the folder of the run."""
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.run = self.run or Path(line.strip()).name

    def _read_errors(self) -> None:
        """Keep the last line, and the one before if it is how to fix that."""
        assert self.process.stderr is not None
        with self.process.stderr as output:
            for line in filter(None, map(str.strip, output)):
                is_fix = line.startswith(FIX) and self.last_error
                self.last_error = f"{self.last_error}; {line.removeprefix(FIX)}" if is_fix else line
        self.process.wait()


class TrainingJobs:
    """The trainings of a server; runs are created in `root`, edited worlds are saved in `worlds`."""

    def __init__(self, root: Path, worlds: Path) -> None:
        self._root, self._worlds = root, worlds
        self._jobs: list[Job] = []
        self._lock = threading.Lock()
        self._speeds: SingleFlightCache[dict[str, float]] = SingleFlightCache(SPEED_SECONDS)

    def start(self, request: TrainRequest) -> Job:
        """Save the world and start training in it; refused while another training runs."""
        with self._lock:
            if sum(job.state == "running" for job in self._jobs) >= MAX_RUNNING:
                raise TownletError("a training is already running", "wait until it ends, or stop it")
            world = self._save(request)
            command = townlet_command(
                "train", f"{world}:{request.variant}", f"budget.env_steps={request.env_steps}",
                f"budget.minutes={MAX_MINUTES}", "--root", str(self._root), "--quiet", "--with-parent",
            )  # fmt: skip
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                start_new_session=True,
            )  # fmt: skip
            title = f"{Path(world).stem}:{request.variant}"
            job = Job(secrets.token_hex(4), title, request.env_steps, process)
            job.read_output()
            self._jobs.append(job)
            return job

    def _save(self, request: TrainRequest) -> str:
        """The world as a recipe names it; an edited one is saved once training in it is known to be possible."""
        if request.text is None:
            if request.world not in shipped():
                raise TownletError(f"there is no world '{request.world}'", "choose one from the list")
            load_experiment(f"{request.world}:{request.variant}")  # an unknown variant is an error now
            return request.world
        require_valid_world(request.world, request.text)
        name = free_name(self._worlds, request.world, request.text)
        with TemporaryDirectory(prefix="townlet-") as folder:
            load_experiment(f"{save_world(Path(folder), name, request.text)}:{request.variant}")
        return str(store_world(self._worlds, request.world, request.text))

    def list(self, *, with_errors: bool = True) -> list[dict[str, Any]]:
        """All trainings of this server, newest first; errors may contain paths of this machine."""
        return [job.as_json(with_errors=with_errors) for job in reversed(self._jobs)]

    def measured_speeds(self) -> dict[str, float]:
        """Steps per second of each variant in earlier trainings on this machine."""
        return self._speeds.get("speeds", lambda: measured_speeds(list_overviews(self._root)))

    def stop(self, id: str) -> None:
        """Stop a training; its run is saved and can be resumed."""
        job = next((job for job in self._jobs if job.id == id), None)
        if job is None:
            raise TownletError("there is no such training", "see the list of trainings")
        if job.state == "running":
            job.stopped = True
            job.process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """Stop all trainings, and wait until they have saved their runs."""
        running = [job for job in self._jobs if job.state == "running"]
        for job in running:
            self.stop(job.id)
        for job in running:
            try:
                job.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                job.process.kill()


def measured_speeds(overviews: Iterable[Overview]) -> dict[str, float]:
    """Steps per second of each variant: the median of the newest trainings in towns on this machine."""
    here = this_machine()
    speeds: dict[str, list[float]] = {}
    for overview in overviews:
        meta, seconds = overview.meta, overview.meta.get("seconds") or 0.0
        if meta.get("machine") == here and not meta.get("gym") and seconds >= MIN_SECONDS:
            variant = overview.recipe.rpartition(":")[2]
            speeds.setdefault(variant, []).append(overview.env_steps / seconds)
    return {variant: median(found[:MAX_MEASURED]) for variant, found in speeds.items()}


@lru_cache(maxsize=16)
def training_choices(world: str) -> list[dict[str, Any]]:
    """The recipes for a shipped world and worlds that extend it; the default variant is recommended."""
    choices, default = [], None
    with suppress(TownletError):  # none of several variants is the default
        default = find_layers(world).variant
    for variant, description in read_variants(world):
        recipe = load_recipe(f"{world}:{variant}").recipe
        if recipe.device == "cpu":
            steps = min(recipe.budget.env_steps or int(MAX_STEPS), int(MAX_STEPS))
            choice = {"variant": variant, "description": description, "env_steps": steps}
            choices.append(choice | {"recommended": variant == default})
    return choices


def training_router(jobs: TrainingJobs) -> APIRouter:
    """Routes that list, start and stop trainings."""
    router = APIRouter(prefix="/api/trainings")

    @router.get("")
    def trainings(request: Request, world: str = "town") -> dict[str, Any]:
        """Trainings that were started on this page, and the recipes for a world and those that extend it."""
        speeds = jobs.measured_speeds()
        choices = [
            {**choice, "steps_per_second": speeds.get(choice["variant"])}
            for choice in training_choices(world if world in shipped() else "town")
        ]
        listed = jobs.list(with_errors=role_of(request) == OPERATOR)
        return {"jobs": listed, "choices": choices, "max_steps": MAX_STEPS, "max_minutes": MAX_MINUTES}

    @router.post("")
    def train(request: TrainRequest) -> dict[str, Any]:
        """Start a training."""
        return jobs.start(request).as_json()

    @router.post("/{id}/stop")
    def stop(id: str) -> dict[str, Any]:
        """Stop a training and save its run."""
        jobs.stop(id)
        return {}

    return router
