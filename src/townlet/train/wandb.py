"""Weights & Biases (extra `wandb`): a sink for metrics, and overrides from its sweeps."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import Tensor

from townlet.config.scalar import to_flow_yaml
from townlet.config.yaml import read
from townlet.errors import TownletError
from townlet.interfaces.counters import Counters, MetricsInterval, Sink
from townlet.recipes.schema import Recipe
from townlet.runs.folder import Run
from townlet.runs.metric_catalog import EVALUATION_METRICS
from townlet.train.sinks import tensorboard_tag

PROJECT_PREFIX: Final = "townlet-"  # followed by the environment, unless WANDB_PROJECT is set
HISTOGRAM_BINS: Final = 64
SWEEP_FILE: Final = "WANDB_SWEEP_PARAM_PATH"  # variable with the path of the file that a sweep agent writes
SERVER: Final = "WANDB_BASE_URL"  # variable with the address of a server
LOCAL_SETTINGS: Final = (Path("wandb/settings"), Path(".wandb/settings"))  # in the working folder
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

        _refuse_local_server()
        with _wandb_errors():
            wandb.setup(_quiet_settings())
            wandb.login(verify=False)


def _refuse_local_server() -> None:
    """Refuse a server that a file in the working folder names: it would receive the user's key."""
    if SERVER in os.environ:
        return
    for path in LOCAL_SETTINGS:
        if path.is_file() and "base_url" in path.read_text(encoding="utf-8", errors="replace"):
            what = f"{path} names the server to which your key of Weights & Biases would be sent"
            raise TownletError(what, f"remove the file, or name the server yourself with {SERVER}")


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


def project_name(env: str) -> str:
    """The project of an environment or world; Weights & Biases allows no slashes and some other characters in it."""
    return PROJECT_PREFIX + re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(env).stem if env.endswith(".yaml") else env)


class WandbSink(Sink):
    """Sends metrics, histograms of weights and gradients, videos and the recipe. Its files are in the run's folder.

    Neither code nor facts about the machine are sent.
    """

    def __init__(self, run: Run, recipe: Recipe) -> None:
        import wandb

        self._wandb, self._weights = wandb, dict[str, Tensor]()
        with _wandb_errors():
            self._run = wandb.init(
                dir=str(run.path),
                project=os.environ.get("WANDB_PROJECT") or project_name(recipe.env),
                id=os.environ.get("WANDB_RUN_ID", run.name),  # the same id when the run is resumed
                name=run.name,
                resume="allow",
                config=recipe.model_dump(mode="json"),
                settings=_quiet_settings(),
            )

    @property
    def link(self) -> str:
        """Where the run can be seen; for an offline run, the command that uploads it."""
        if self._run.offline or not self._run.url:
            return f"wandb sync {Path(self._run.dir).parent}"
        return str(self._run.url)

    def on_interval(self, interval: MetricsInterval) -> None:
        """Log all metrics, under the same tags as in TensorBoard."""
        self._weights = dict(interval.weights)
        metrics = {tensorboard_tag(name): value for name, value in interval.metrics.items()}
        self._run.log(metrics, step=interval.env_steps)

    def on_evaluation(self, counters: Counters, evaluation: Mapping[str, Any]) -> None:
        """Log the metrics of an evaluation and histograms; a sweep should maximize `evaluation/score`."""
        if evaluation["policy"] != "random":
            names = [name for name in (*EVALUATION_METRICS, "score") if evaluation[name] is not None]
            logged = {f"evaluation/{name}": evaluation[name] for name in names}
            self._run.log(logged | self._histograms(), step=counters.env_steps)

    def _histograms(self) -> dict[str, Any]:
        """Histograms of the weights, and of the gradients of the last gradient step after clipping."""
        tensors = {f"weights/{name}": weight for name, weight in self._weights.items()}
        tensors |= {f"gradients/{name}": w.grad for name, w in self._weights.items() if w.grad is not None}
        return {
            name: self._wandb.Histogram(np_histogram=np.histogram(values.detach().cpu().numpy(), bins=HISTOGRAM_BINS))
            for name, values in tensors.items()
        }

    def on_video(self, counters: Counters, path: Path) -> None:
        """Log a video of evaluation episodes."""
        video = self._wandb.Video(str(path), caption=path.stem, format="mp4")
        self._run.log({"evaluation/video": video}, step=counters.env_steps)

    def close(self) -> None:
        self._run.finish()
