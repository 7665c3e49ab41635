"""Weights & Biases (extra `wandb`): a sink for metrics, and overrides from its sweeps."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from townlet.config.scalar import to_flow_yaml
from townlet.config.yaml import read
from townlet.errors import TownletError
from townlet.interfaces.counters import Counters, MetricsInterval, Sink
from townlet.recipes.schema import Recipe
from townlet.runs.folder import Run
from townlet.runs.metric_catalog import EVALUATION_METRICS
from townlet.train.sinks import tensorboard_tag

DEFAULT_PROJECT: Final = "townlet"  # unless WANDB_PROJECT is set
SWEEP_FILE: Final = "WANDB_SWEEP_PARAM_PATH"  # variable with the path of the file that a sweep agent writes
VERSION_KEY: Final = "wandb_version"  # the only key of that file that is not a setting


def _quiet_settings() -> Any:
    """Settings without console output, and without facts about this machine."""
    import wandb

    return wandb.Settings(
        console="off", silent=True, disable_code=True, disable_git=True, save_code=False,
        x_disable_meta=True, x_disable_machine_info=True, x_save_requirements=False,
    )  # fmt: skip


@contextmanager
def _wandb_errors() -> Iterator[None]:
    """Turn errors of Weights & Biases into errors for the user."""
    import wandb

    try:
        yield
    except (wandb.Error, OSError) as error:
        what = f"Weights & Biases cannot be used: {str(error).partition(chr(10))[0]}"
        raise TownletError(what, "run `wandb login`, or set WANDB_MODE=offline to keep the metrics local") from None


def require_login(recipe: Recipe) -> None:
    """If the recipe uses Weights & Biases, check the login before anything is written."""
    if recipe.metrics.wandb:
        import wandb

        with _wandb_errors():
            wandb.setup(_quiet_settings())
            wandb.login(verify=False)


def sweep_overrides() -> list[str]:
    """The overrides of a sweep agent as `key=value`, with `metrics.wandb=true`; [] without one."""
    path = os.environ.get(SWEEP_FILE)
    if not path:
        return []
    values = read(Path(path)).value
    overrides = []
    for key, node in values.items() if isinstance(values, dict) else ():
        if key != VERSION_KEY:
            value = node.child("value") if isinstance(node.value, dict) else None  # an entry may be {desc, value}
            overrides.append(f"{key}={to_flow_yaml((value or node).to_python())}")
    return [*overrides, "metrics.wandb=true"]


class WandbSink(Sink):
    """Sends the metrics of intervals and evaluations, and the recipe; local files of wandb are in the run's folder.

    Neither code nor facts about the machine are sent.
    """

    def __init__(self, run: Run, recipe: Recipe) -> None:
        import wandb

        with _wandb_errors():
            self._run = wandb.init(
                dir=str(run.path),
                project=os.environ.get("WANDB_PROJECT", DEFAULT_PROJECT),
                id=os.environ.get("WANDB_RUN_ID", run.name),  # the same id when the run is resumed
                name=run.name,
                resume="allow",
                config=recipe.model_dump(mode="json"),
                settings=_quiet_settings(),
            )

    def on_interval(self, interval: MetricsInterval) -> None:
        """Log all metrics, under the same tags as in TensorBoard."""
        metrics = {tensorboard_tag(name): value for name, value in interval.metrics.items()}
        self._run.log(metrics, step=interval.env_steps)

    def on_evaluation(self, counters: Counters, evaluation: Mapping[str, Any]) -> None:
        """Log the metrics of an evaluation; a sweep should maximize `evaluation/score`."""
        if evaluation["policy"] != "random":
            names = [name for name in (*EVALUATION_METRICS, "score") if evaluation[name] is not None]
            self._run.log({f"evaluation/{name}": evaluation[name] for name in names}, step=counters.env_steps)

    def close(self) -> None:
        self._run.finish()
