"""Weights & Biases (extra `wandb`): where a run may be sent as well, and whose sweeps may say what it tries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from townlet.config.scalar import to_flow_yaml
from townlet.config.yaml import Node, read
from townlet.errors import TownletError
from townlet.interfaces.counters import Counters
from townlet.recipes.schema import Recipe
from townlet.runs.folder import Run
from townlet.train.sinks import EVALUATED, Mark, tag

PROJECT: Final = "townlet"  # unless WANDB_PROJECT says otherwise
ASKED: Final = "WANDB_SWEEP_PARAM_PATH"  # where an agent writes what it wants tried
FORMAT: Final = "wandb_version"  # the one key of that file which is no setting


def _quiet() -> Any:
    """Neither words on the console nor anything of this machine."""
    import wandb

    return wandb.Settings(
        console="off", silent=True, disable_code=True, disable_git=True, save_code=False,
        x_disable_meta=True, x_disable_machine_info=True, x_save_requirements=False,
    )  # fmt: skip


@contextmanager
def _in_words() -> Iterator[None]:
    import wandb

    try:
        yield
    except (wandb.Error, OSError) as error:
        what = f"Weights & Biases cannot be used: {str(error).partition(chr(10))[0]}"
        raise TownletError(what, "type `wandb login`, or set WANDB_MODE=offline to keep it here") from None


def require_login(recipe: Recipe) -> None:
    """Refuse, before anything is written, to send a run for somebody who is not known there."""
    if recipe.metrics.wandb:
        import wandb

        with _in_words():
            wandb.setup(_quiet())
            wandb.login(verify=False)


def sweep_words() -> list[str]:
    """`key=value` of what a sweep's agent wants this process to try; it is sent there as well then."""
    place = os.environ.get(ASKED)
    if not place:
        return []
    found = read(Path(place)).value
    entries = {} if not isinstance(found, dict) else {key: node for key, node in found.items() if key != FORMAT}
    return [*(f"{key}={to_flow_yaml(_value(node))}" for key, node in entries.items()), "metrics.wandb=true"]


def _value(node: Node) -> Any:
    """An entry is {desc, value}."""
    below = node.child("value") if isinstance(node.value, dict) else None
    return (below or node).to_python()


class Wandb:
    """Figures at every mark and evaluation, and the recipe. Its files lie in the run's folder.

    Neither code nor the machine's environment is sent: only what stands here.
    """

    def __init__(self, run: Run, recipe: Recipe) -> None:
        import wandb

        with _in_words():
            self._run = wandb.init(
                dir=str(run.path),
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                id=os.environ.get("WANDB_RUN_ID", run.name),  # so that a run that goes on does so there too
                name=run.name,
                resume="allow",
                config=recipe.model_dump(mode="json"),
                settings=_quiet(),
            )

    def tick(self, counters: Counters) -> None:
        """Only marks are sent."""

    def mark(self, mark: Mark) -> None:
        """Each figure in the group of its kind."""
        self._run.log({tag(name): value for name, value in mark.figures.items()}, step=mark.env_steps)

    def evaluated(self, counters: Counters, columns: Mapping[str, Any]) -> None:
        """The figures of an evaluation; `evaluation/score` is what a sweep there should maximise."""
        if columns["policy"] != "random":
            names = [name for name in (*EVALUATED, "score") if columns[name] is not None]
            self._run.log({f"evaluation/{name}": columns[name] for name in names}, step=counters.env_steps)

    def note(self, text: str) -> None:
        """Text stays with the log."""

    def close(self) -> None:
        """Send or write what waits."""
        self._run.finish()
