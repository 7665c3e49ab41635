"""Trainings that the operator starts on the page: each is a process of its own and leaves an ordinary run."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from townlet.errors import TownletError
from townlet.live.messages import Message
from townlet.live.world_editing import save_world
from townlet.recipes.catalog import read_variants
from townlet.recipes.load import load_recipe
from townlet.runs.folder import Run
from townlet.runs.lock import lock_holder
from townlet.town.world.load import shipped

MAX_STEPS: Final = 2e7
MAX_MINUTES: Final = 30
MAX_RUNNING: Final = 1
STOP_SECONDS: Final = 8.0  # in which a stopped training saves its run
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
    output: list[str] = field(default_factory=list)  # last lines of its error output

    @property
    def state(self) -> str:
        """running, finished, stopped or failed."""
        code = self.process.poll()
        if code is None:
            return "running"
        if self.stopped:
            return "stopped"
        return "finished" if code == 0 else "failed"

    def as_json(self) -> dict[str, Any]:
        error = " ".join("".join(self.output).split())[:ERROR_CHARACTERS] if self.state == "failed" else ""
        return {
            "id": self.id, "title": self.title, "env_steps": self.env_steps, "run": self.run, "state": self.state,
            "error": error,
        }  # fmt: skip


class TrainingJobs:
    """The trainings of a server; runs are created in `root`, edited worlds are saved in `worlds`."""

    def __init__(self, root: Path, worlds: Path) -> None:
        self._root, self._worlds = root, worlds
        self._jobs: list[Job] = []
        self._lock = threading.Lock()

    def start(self, request: TrainRequest) -> Job:
        """Save the world and start training in it; refused while another training runs."""
        with self._lock:
            if sum(job.state == "running" for job in self._jobs) >= MAX_RUNNING:
                raise TownletError("a training is already running", "wait until it ends, or stop it")
            name = request.world
            if request.text is not None:
                name = str(save_world(self._worlds, request.world, request.text, again=True))
            elif name not in shipped():
                raise TownletError(f"there is no world '{name}'", "choose one from the list")
            title = f"{name}:{request.variant}"
            load_recipe(title)  # an unknown variant is an error now
            command = [
                sys.executable, "-m", "townlet", "train", title, f"budget.env_steps={request.env_steps}",
                f"budget.minutes={MAX_MINUTES}", "--root", str(self._root), "--quiet",
            ]  # fmt: skip
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                start_new_session=True,
            )  # fmt: skip
            job = Job(secrets.token_hex(4), f"{request.world}:{request.variant}", request.env_steps, process)
            threading.Thread(target=_read_output, args=(job,), daemon=True).start()
            self._jobs.append(job)
            return job

    def list(self) -> list[dict[str, Any]]:
        """All trainings of this server, newest first."""
        for job in self._jobs:
            if job.run is None:
                job.run = self._find_run(job.process.pid)
        return [job.as_json() for job in reversed(self._jobs)]

    def _find_run(self, pid: int) -> str | None:
        """The run that a process writes."""
        for run in Run.list(self._root):
            holder = lock_holder(run.path)
            if holder is not None and holder.get("pid") == pid:
                return run.name
        return None

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


def _read_output(job: Job) -> None:
    assert job.process.stderr is not None
    for line in job.process.stderr:
        job.output = [*job.output, line][-20:]
    job.process.wait()


@lru_cache(maxsize=16)
def training_choices(world: str) -> list[dict[str, Any]]:
    """The recipes for a shipped world and worlds that extend it: variant, description and default budget."""
    choices = []
    for variant, description in read_variants(world):
        recipe = load_recipe(f"{world}:{variant}").recipe
        if recipe.device == "cpu":
            steps = min(recipe.budget.env_steps or int(MAX_STEPS), int(MAX_STEPS))
            choices.append({"variant": variant, "description": description, "env_steps": steps})
    return choices
