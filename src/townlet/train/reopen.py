"""A run as it was: its recipe and its own copies of its worlds, whatever became of the files since.

What may change when a run goes on is a short list: all else would make one run out of two experiments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from townlet.errors import ConfigError, TownletError
from townlet.recipes.schema import Recipe
from townlet.runs import provenance
from townlet.runs.folder import Run
from townlet.tasks.experiment import LoadedExperiment, load_experiment
from townlet.tasks.town import TownTask
from townlet.tasks.town_worlds import Worlds, load_worlds
from townlet.town.world.load import load as load_world
from townlet.train.fingerprint import code_hashes

# Keys that neither the experiment nor what was measured so far depends on; a part stands for all of its keys.
MAY_CHANGE: Final = (
    "budget", "agent.lr", "checkpoints", "metrics", "video", "evaluation.every", "evaluation.episodes", "threads",
    "device",
)  # fmt: skip


def reopen(run: Run, overrides: Sequence[str] = ()) -> LoadedExperiment:
    """The recipe and the worlds of a run, with `overrides` of what may change; raises ConfigError."""
    earlier = run.meta().get("resumed_with", ())
    provenance.require_files(run)
    kept = _kept(run)
    before = load_experiment(str(run.resolved_file), earlier, kept)
    loaded = load_experiment(str(run.resolved_file), [*earlier, *overrides], kept) if overrides else before
    _refuse_changes(run, before.recipe, loaded)
    code = tuple(_changed_code(run, loaded.recipe))
    if kept is None:
        return replace(loaded, notes=(*loaded.notes, *code))
    name = Path(loaded.recipe.world or loaded.recipe.env).stem  # a copy is not named after its file
    worlds = Worlds(*(replace(world, name=name) for world in kept))
    return replace(loaded, task=TownTask(worlds), notes=(*_notes(run, loaded), *code))


def world_file(run: Run, role: str) -> Path:
    """The run's own copy of the world of its `training` or `evaluation`."""
    return run.worlds / f"{role}.yaml"


def _kept(run: Run) -> Worlds | None:
    """The run's own worlds; None for a run of an older release, which has none."""
    if not run.worlds.is_dir():
        return None
    return Worlds(*(load_world(world_file(run, role)) for role in Worlds._fields))


def _notes(run: Run, loaded: LoadedExperiment) -> tuple[str, ...]:
    """A sentence where the files that the worlds came from are no longer what they were."""
    name = loaded.recipe.world or loaded.recipe.env
    try:
        now = load_worlds(loaded.recipe, loaded.node)
    except ConfigError:
        return (f"The world {name} is gone or cannot be read; this run has its own copy in {run.worlds}.",)
    same = all(a.content_hash == b.content_hash for a, b in zip(now, loaded.worlds, strict=True))
    return () if same else (f"The world {name} has changed since; this run keeps to its own copy in {run.worlds}.",)


def _changed_code(run: Run, recipe: Recipe) -> Iterator[str]:
    """A sentence for each Python file of the user's own that changed after the run started."""
    known = run.meta().get("code", ())
    for file, before, now in zip(recipe.user_files, known, code_hashes(recipe), strict=False):
        if before != now:
            yield f"{file} has changed since this run started: what follows is done by the new code."


def _refuse_changes(run: Run, before: Recipe, after: LoadedExperiment) -> None:
    """Refuse what may not change, in one message."""
    odd = [path for path in _differing(before.model_dump(), after.recipe.model_dump()) if not _may_change(path)]
    if not odd:
        return
    places = (after.node.location_of(*path).source.removeprefix("command line: ") for path in odd)
    what = f"a run that goes on cannot be changed in {', '.join(dict.fromkeys(places))}"
    fix = f"it may have another {', '.join(MAY_CHANGE)}; for all else start a new run, with init_from={run.name}"
    raise TownletError(what, fix)


def _may_change(path: tuple[str, ...]) -> bool:
    return any(path[: part.count(".") + 1] == tuple(part.split(".")) for part in MAY_CHANGE)


def _differing(
    one: Mapping[str, Any], other: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Paths of the values that are not the same in both."""
    for key in {**one, **other}:
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from _differing(a, b, (*path, key))
        elif a != b:
            yield (*path, key)
