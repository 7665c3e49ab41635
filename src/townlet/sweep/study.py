"""The Optuna study of a sweep, from which any number of processes and machines take trials."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from townlet.config.scalar import quote, to_flow_yaml
from townlet.errors import TownletError
from townlet.interfaces.counters import Sink
from townlet.recipes.catalog import FOLDER, RecipeLayers, find_layers
from townlet.recipes.load import override_layers
from townlet.recipes.schema import Recipe
from townlet.rng import Streams
from townlet.runs.disk import replace_file
from townlet.sweep.space import recipe_values
from townlet.sweep.trial import BASELINE, SweepConfig, train_trial

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

STORAGE_FILE: Final = "sweeps.db"  # in the runs' folder, unless another storage is given
CONFIG: Final = "config"  # study attribute: what all its trials must share
RETRY_OF: Final = "retry_of"  # trial attribute: number of the interrupted trial that it repeats
SURPLUS: Final = "surplus"  # trial attribute: set if it is one too many, since processes took trials at once
ERROR: Final = "error"  # trial attribute: why it failed
ALREADY_FINISHED: Final = "Cannot tell a"  # start of Optuna's message about a trial that is already finished
PRUNING_WARMUP: Final = 0.2  # fraction of the budget before which no trial is pruned
HEARTBEAT: Final = 30  # seconds between two heartbeats of a trial
GRACE_PERIOD: Final = 120  # seconds without a heartbeat after which a trial is considered dead
OPEN_ATTEMPTS: Final = 5
JOIN_TIMEOUT: Final = 10.0  # seconds to wait for the process that creates the study
BEST_SUFFIX: Final = "-best.yaml"
MAX_COMMAND: Final = 400  # characters of `result.command`; the first line of the file has the full command
DEFAULT_VARIANT: Final = "best"  # if the swept recipe has no variant


def require_optuna() -> None:
    if find_spec("optuna") is None:
        raise TownletError("a sweep needs optuna, which is not installed", "install it: pip install 'townlet[sweep]'")


def open_study(config: SweepConfig, storage: str | None, seed: int) -> Study:
    """Create the study, or join the existing one of this name; raises an error if its configuration differs."""
    require_optuna()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    database = _open_storage(storage, config.root)
    space = {path: search_range.model_dump(exclude_defaults=True) for path, search_range in config.space.items()}
    shared = {  # what all trials of the study have in common
        "recipe": config.recipe_name,
        "overrides": sorted(config.overrides),
        "space": {path: to_flow_yaml(search_range) for path, search_range in space.items()},
        "seeds": config.seeds,
    }
    warmup = round(PRUNING_WARMUP * (config.recipe.budget.env_steps or 0) / config.recipe.evaluation_interval)
    pruner = optuna.pruners.MedianPruner(n_warmup_steps=warmup)
    with _hide_url(storage):
        try:
            study = optuna.create_study(storage=database, study_name=config.study, direction="maximize", pruner=pruner)
        except optuna.exceptions.DuplicatedStudyError:
            # An unseeded sampler: with the same seed, every process would suggest the same values.
            sampler = optuna.samplers.TPESampler()
            study = optuna.load_study(study_name=config.study, storage=database, pruner=pruner, sampler=sampler)
            _check_joined(study, shared)
        else:
            study.sampler = optuna.samplers.TPESampler(seed=Streams(seed).key("sweep") % 2**32)
            study.set_user_attr(CONFIG, shared)
            baseline = recipe_values(config.recipe, config.space)
            study.enqueue_trial(baseline, user_attrs={BASELINE: baseline})
    return study


def _check_joined(study: Study, shared: dict[str, Any]) -> None:
    """Wait until the study is set up, and raise an error if its configuration differs from `shared`."""
    deadline = time.monotonic() + JOIN_TIMEOUT
    # The process that creates the study still has to store its configuration and to take the first trial: SQLite may
    # hand the same waiting trial to two processes.
    while time.monotonic() < deadline:
        if (trials := study.get_trials(deepcopy=False)) and trials[0].state.name != "WAITING":
            break
        time.sleep(0.05)
    stored = study.user_attrs.get(CONFIG)
    if stored != shared:
        different = [key for key in shared if not isinstance(stored, dict) or stored.get(key) != shared[key]]
        what = f"the sweep '{study.study_name}' already exists and differs in {' and '.join(different)}"
        raise TownletError(what, "repeat its original command, or start another sweep with --name")


def _open_storage(url: str | None, root: Path) -> Any:
    """The database of the study: SQLite in the runs' folder, or the given URL."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import IntegrityError, OperationalError

    if url is None:
        root.mkdir(parents=True, exist_ok=True)
        url = f"sqlite:///{(root / STORAGE_FILE).absolute()}"
    options = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {"pool_pre_ping": True}
    with _hide_url(url), warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        for attempts_left in reversed(range(OPEN_ATTEMPTS)):
            try:
                return RDBStorage(
                    url,
                    engine_kwargs=options,
                    heartbeat_interval=HEARTBEAT,
                    grace_period=GRACE_PERIOD,
                    heartbeat_stale_trial_callback=_retry,
                )
            except (IntegrityError, OperationalError):  # another process is creating the tables
                if not attempts_left:
                    raise
                time.sleep(0.3)


@contextmanager
def _hide_url(url: str | None) -> Iterator[None]:
    """Translate database errors without the URL, which may contain a password."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError, ImportError, ValueError) as error:
        cause = error.__cause__ or error
        reason = "its database driver is not installed" if isinstance(error, ImportError) else type(cause).__name__
        what = f"the storage of the sweep cannot be opened: {reason}"
        fix = "give --storage a URL such as sqlite:///sweeps.db or postgresql://host/name, and install its driver"
        raise TownletError(what, fix) from None


def _retry(study: Study, trial: FrozenTrial) -> None:
    """Enqueue the values of a trial that did not finish as a new trial."""
    baseline = trial.user_attrs.get(BASELINE)
    attributes = {} if baseline is None else {BASELINE: baseline}
    study.enqueue_trial(trial.params or baseline or {}, user_attrs={**attributes, RETRY_OF: trial.number})


def counted_trials(study: Study) -> list[FrozenTrial]:
    """Trials that are running or finished, except surplus trials and those that were enqueued again."""
    trials = study.get_trials(deepcopy=False)
    retried = {trial.user_attrs.get(RETRY_OF) for trial in trials}
    return [t for t in trials if t.state.name != "WAITING" and t.number not in retried and SURPLUS not in t.user_attrs]


def run_sweep(
    study: Study,
    config: SweepConfig,
    trials: int,
    sink: Callable[[Recipe], Sink] | None = None,
    on_trial: Callable[[FrozenTrial, float | None], None] = lambda trial, best_score: None,
) -> bool:
    """Run trials until the study has this many, counting all processes; False if interrupted.

    A failed trial is recorded, and the next one starts. `on_trial` gets each finished trial and the best score so far.
    """
    running: list[Trial] = []

    def objective(trial: Trial) -> float:
        running[:] = [trial]
        if sum(t.number < trial.number for t in counted_trials(study)) >= trials:
            trial.set_user_attr(SURPLUS, True)
            raise TownletError("another process took the last trial")
        try:
            return train_trial(trial, config, sink)
        except (TownletError, RuntimeError, MemoryError) as error:  # torch raises RuntimeErrors
            what = error.diagnostics[0].what if isinstance(error, TownletError) else f"{type(error).__name__}: {error}"
            trial.set_user_attr(ERROR, what.partition("\n")[0][:200])
            raise

    while len(counted_trials(study)) < trials:
        try:
            study.optimize(objective, n_trials=1, catch=(TownletError, RuntimeError, MemoryError))
        except ValueError as error:
            if ALREADY_FINISHED not in str(error):
                raise
            continue  # two processes took the same waiting trial, and the other one finished it
        except KeyboardInterrupt:
            if running:
                _retry(study, study.get_trials(deepcopy=False)[running[0].number])
            return False
        last = study.get_trials(deepcopy=False)[running[0].number]
        if SURPLUS not in last.user_attrs:
            best = best_trial(study)
            on_trial(last, best.value if best else None)
    return True


def best_trial(study: Study) -> FrozenTrial | None:
    """The completed trial with the highest score; the first of equals."""
    completed = [trial for trial in counted_trials(study) if trial.state.name == "COMPLETE" and trial.value is not None]
    return max(completed, key=lambda trial: (trial.value or 0.0, -trial.number), default=None)


def baseline_trial(study: Study) -> FrozenTrial | None:
    """The trial of the unchanged recipe, once completed."""
    completed = (t for t in counted_trials(study) if BASELINE in t.user_attrs and t.state.name == "COMPLETE")
    return next(completed, None)


def parameter_importance(study: Study) -> dict[str, float]:
    """The importance of each searched key; all sum to 1. Empty for a single key or too few trials."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    if sum(trial.state.name == "COMPLETE" for trial in counted_trials(study)) < 2:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importances = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    except (ValueError, RuntimeError, ZeroDivisionError):
        return {}
    return importances if len(importances) > 1 else {}


def best_recipe_path(config: SweepConfig) -> Path:
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", config.study).strip("-.") or "sweep"
    return config.root / f"{name}{BEST_SUFFIX}"


def write_best_recipe(path: Path, config: SweepConfig, overrides: list[str], what: str, command: str) -> None:
    """Write a recipe that extends the swept one by `overrides`; `what` describes its result, `command` found it.

    It has a single variant, so that `townlet train FILE` suffices.
    """
    layers, recipe = find_layers(config.recipe_name), config.recipe
    about = {
        "description": f"{recipe.title} with the best values of a sweep.",
        "tuned": True,
        "result": [{"what": what, "command": command if len(command) <= MAX_COMMAND else ""}],
    }
    values: dict[str, Any] = {}
    for layer in override_layers([*config.overrides, *overrides]):
        values |= layer.to_python()
    lines = [f"# Found by: {command}", f"env: {quote(recipe.env)}"]
    lines += [f"world: {quote(recipe.world)}"] if recipe.world else []
    if layers.variant is None:
        lines.insert(1, f"extends: {to_flow_yaml(_file_reference(layers))}")
    lines += ["variants:", f"  {quote(layers.variant or DEFAULT_VARIANT)}:"]
    if layers.variant is not None:
        lines.append(f"    extends: {to_flow_yaml(f'{_file_reference(layers)}:{layers.variant}')}")
    lines += [f"    {quote(key)}: {to_flow_yaml(value)}" for key, value in {**about, **values}.items()]
    replace_file(path, "".join(f"{line}\n" for line in lines).encode())


def _file_reference(layers: RecipeLayers) -> str:
    """The swept file: its name if shipped, else its absolute path."""
    path = layers.file.path
    return path.stem if path.parent == FOLDER else os.path.abspath(path)


def describe_result(recipe: Recipe, score: float, baseline: float | None, *, unchanged: bool) -> str:
    before = "" if baseline is None else f", {baseline:.1f} before the search"
    return f"{recipe.metric} {score:.1f} in one trial" + ("; no better values were found" if unchanged else before)
