"""The study that trials share: any number of processes, on any number of machines, draw from it and tell it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from townlet.config.scalar import to_flow_yaml
from townlet.errors import TownletError
from townlet.recipes.schema import Recipe
from townlet.rng import Streams
from townlet.sweep.space import own_values
from townlet.sweep.trial import START, Experiment, train
from townlet.train.sinks import Sink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

FILE: Final = "sweeps.db"  # below the runs' folder, where no other storage is named
ABOUT: Final = "experiment"  # what a study says that its trials share
AGAIN: Final = "again"  # the number of a trial whose process ended before it did: this one is trained in its place
VOID: Final = "void"  # one trial too many, drawn in the same instant as the last one by another process
WHY: Final = "why"  # what a failed trial failed of
TWICE: Final = "Cannot tell a"  # how Optuna refuses a trial that is over
WARMUP: Final = 0.2  # of the budget: before it nothing is cut short
HEARTBEAT: Final = 30  # seconds between two signs of life of a trial
SILENCE: Final = 120  # seconds without one after which its process counts as gone
TRIES: Final = 5  # to open a storage that others open too
PATIENCE: Final = 10.0  # seconds for whoever made the study to say what it is about


@dataclass(frozen=True)
class Told:
    """How one trial ended, as soon as it did."""

    trial: FrozenTrial
    best: float | None  # of the whole study so far


def need_optuna() -> None:
    """Refuse in one line where the extra is missing."""
    if find_spec("optuna") is None:
        raise TownletError("a sweep needs optuna, which is not installed", "install it: pip install 'townlet[sweep]'")


def open_study(experiment: Experiment, storage: str | None, seed: int) -> Study:
    """The study of this name, made where there is none; refused where it searches something else."""
    need_optuna()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    place, about = _storage(storage, experiment.root), _about(experiment)
    pruner = optuna.pruners.MedianPruner(n_warmup_steps=_warmup(experiment.recipe))
    with _in_words(storage):
        try:
            study = optuna.create_study(storage=place, study_name=experiment.study, direction="maximize", pruner=pruner)
        except optuna.exceptions.DuplicatedStudyError:
            # Whoever joins draws by a chance of their own: the same would try the same values.
            study = optuna.load_study(
                study_name=experiment.study, storage=place, pruner=pruner, sampler=optuna.samplers.TPESampler()
            )
            _join(study, about)
        else:
            study.sampler = optuna.samplers.TPESampler(seed=Streams(seed).key("sweep") % 2**32)
            study.set_user_attr(ABOUT, about)
            own = own_values(experiment.recipe, experiment.space)
            study.enqueue_trial(own, user_attrs={START: own})
    return study


def _about(experiment: Experiment) -> dict[str, Any]:
    """What trials of one study must share."""
    space = {path: searched.model_dump(exclude_defaults=True) for path, searched in experiment.space.items()}
    return {
        "asked": experiment.asked,
        "words": sorted(experiment.words),
        "space": {path: to_flow_yaml(said) for path, said in space.items()},
        "seeds": experiment.seeds,
    }


def _join(study: Study, about: dict[str, Any]) -> None:
    until = time.monotonic() + PATIENCE
    while not _begun(study) and time.monotonic() < until:
        time.sleep(0.05)  # whoever made it is about to say what it is, and to take the first trial
    known = study.user_attrs.get(ABOUT)
    if known != about:
        differ = [key for key in about if not isinstance(known, dict) or known.get(key) != about[key]]
        what = f"the sweep '{study.study_name}' is another one: it differs in {' and '.join(differ)}"
        raise TownletError(what, "repeat the words it was begun with, or begin another one with --name")


def _begun(study: Study) -> bool:
    """Whether the first trial is taken: SQLite would hand one that waits to two who ask in the same instant."""
    every = study.get_trials(deepcopy=False)
    return bool(every) and every[0].state.name != "WAITING"


def _storage(url: str | None, root: Path) -> Any:
    """Where the study lies: a file below the runs' folder, or any database."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import IntegrityError, OperationalError

    if url is None:
        root.mkdir(parents=True, exist_ok=True)
        url = f"sqlite:///{(root / FILE).absolute()}"
    patient = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {"pool_pre_ping": True}
    with _in_words(url), warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        for left in reversed(range(TRIES)):
            try:
                return RDBStorage(
                    url,
                    engine_kwargs=patient,
                    heartbeat_interval=HEARTBEAT,
                    grace_period=SILENCE,
                    heartbeat_stale_trial_callback=_again,
                )
            except (IntegrityError, OperationalError):  # another process makes its tables in this very instant
                if not left:
                    raise
                time.sleep(0.3)


@contextmanager
def _in_words(url: str | None) -> Iterator[None]:
    """What a database says is told without its address, which may hold a password."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError, ImportError, ValueError) as error:
        cause = error.__cause__ or error
        why = "the driver of its database is not installed" if isinstance(error, ImportError) else type(cause).__name__
        what = f"the storage of the sweep cannot be opened: {why}"
        fix = "give --storage a URL such as sqlite:///sweeps.db or postgresql://host/name, and install its driver"
        raise TownletError(what, fix) from None


def _warmup(recipe: Recipe) -> int:
    """Evaluations before which no trial is cut short."""
    return round(WARMUP * (recipe.budget.env_steps or 0) / recipe.evaluate_every)


def _again(study: Study, trial: FrozenTrial) -> None:
    """Queue up what a trial tried that did not come to its end."""
    start = trial.user_attrs.get(START)
    mark = {} if start is None else {START: start}
    study.enqueue_trial(trial.params or start or {}, user_attrs={**mark, AGAIN: trial.number})


def counted(study: Study) -> list[FrozenTrial]:
    """Trials that are under way or over, less those that are trained again or were too many."""
    every = study.get_trials(deepcopy=False)
    replaced = {trial.user_attrs.get(AGAIN) for trial in every}
    return [t for t in every if t.state.name != "WAITING" and t.number not in replaced and VOID not in t.user_attrs]


def sweep(
    study: Study,
    experiment: Experiment,
    trials: int,
    sink: Callable[[Recipe], Sink] | None = None,
    tell: Callable[[Told], None] = lambda told: None,
) -> bool:
    """Try until the study has so many trials, all processes together; False when somebody interrupted it.

    A trial that fails is told as such, and the next one begins.
    """
    running: list[Trial] = []

    def one(trial: Trial) -> float:
        running[:] = [trial]
        if sum(t.number < trial.number for t in counted(study)) >= trials:
            trial.set_user_attr(VOID, True)
            raise TownletError("another process was faster")
        try:
            return train(trial, experiment, sink)
        except (TownletError, RuntimeError, MemoryError) as error:  # torch's own are RuntimeErrors
            said = error.diagnostics[0].what if isinstance(error, TownletError) else f"{type(error).__name__}: {error}"
            trial.set_user_attr(WHY, said.partition("\n")[0][:200])
            raise

    while len(counted(study)) < trials:
        try:
            study.optimize(one, n_trials=1, catch=(TownletError, RuntimeError, MemoryError))
        except ValueError as error:
            if TWICE not in str(error):
                raise
            continue  # a trial that waited was taken by two; the other one told it
        except KeyboardInterrupt:
            if running:
                _again(study, study.get_trials(deepcopy=False)[running[0].number])
            return False
        last = study.get_trials(deepcopy=False)[running[0].number]
        if VOID not in last.user_attrs:
            tell(Told(last, best_value(study)))
    return True


def best(study: Study) -> FrozenTrial | None:
    """The best trial that came to its end."""
    done = [trial for trial in counted(study) if trial.state.name == "COMPLETE" and trial.value is not None]
    return max(done, key=lambda trial: (trial.value or 0.0, -trial.number), default=None)


def best_value(study: Study) -> float | None:
    """Its score."""
    found = best(study)
    return None if found is None else found.value


def start(study: Study) -> FrozenTrial | None:
    """The trial of the recipe as it is, once it came to its end."""
    done = (t for t in counted(study) if START in t.user_attrs and t.state.name == "COMPLETE")
    return next(done, None)


def importance(study: Study) -> dict[str, float]:
    """Which keys decided most, as shares; empty where one key or too few trials tell nothing."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    if sum(trial.state.name == "COMPLETE" for trial in counted(study)) < 2:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shares = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    except (ValueError, RuntimeError, ZeroDivisionError):
        return {}
    return shares if len(shares) > 1 else {}
