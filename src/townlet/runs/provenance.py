"""Provenance of a run: its id, checksums of its recipe and worlds, and the identity stored in checkpoints.

The recipe hash is the sha256 of canonical JSON of [the settings in resolved.yaml, the overrides it was resumed with]:
comments and layout are ignored; a deliberate change is made by an override and becomes part of the hash.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, cast

from townlet.config.merge import apply_overrides
from townlet.config.yaml import parse, read
from townlet.errors import ConfigError, TownletError
from townlet.runs import checkpoint, disk
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run

IDENTITY_KEYS: Final = ("run_id", "recipe", "recipe_hash", "resumed_with", "env_steps")
POSITION_KEYS: Final = ("metrics", "metrics_digest")  # of checkpoints that can be resumed; policy snapshots lack them
URL_PASSWORD: Final = re.compile(r"(://[^\s:/@]*:)[^\s/]*(@)")
PACKAGES: Final = ("torch", "numpy", "numba", "gymnasium")  # their versions are recorded
MAX_BYTES: Final = 16 << 20  # maximum size of a recipe or a world
DESCRIPTIVE_KEYS: Final = ("description", "result", "tuned")  # descriptions, not settings
# Keys that may differ between runs of one experiment: the seed, and how results are computed and stored.
PER_RUN_KEYS: Final = ("seed", "threads", "metrics", "checkpoints", "video")


def recipe_hash(recipe: Mapping[str, Any], resumed_with: Sequence[str] = ()) -> str:
    """The recipe hash of the settings in resolved.yaml and the overrides of every resume."""
    return hashlib.sha256(_canonical([recipe, list(resumed_with)]).encode()).hexdigest()


def read_settings(run: Run) -> dict[str, Any]:
    """Every setting in resolved.yaml, as JSON values."""
    return parse_settings(disk.read_bounded(run.resolved_file, MAX_BYTES), run.resolved_file)


def parse_settings(text: bytes, path: Path = Path("resolved.yaml")) -> dict[str, Any]:
    """Every setting in the text of resolved.yaml, as JSON values."""
    try:  # with its name alone, so that a text is parsed once, before and after the folder of its run exists
        return cast("dict[str, Any]", json.loads(_canonical(parse(text, path.name).to_python())))
    except ConfigError as error:
        first, fix = error.diagnostics[0], "restore the file from a backup"
        where = path if first.where is None else replace(first.where, source=str(path))
        raise TownletError(f"{path.name} cannot be read: {first.what}", fix, where) from None


def checkpoint_identity(run: Run, resumed_with: Sequence[str]) -> dict[str, Any]:
    """Identity stored in every checkpoint: only this run, with this recipe, can resume from it."""
    if (run_id := run.meta().get("run_id")) is None:
        what = "this run has no id: it was started by an older release"
        raise TownletError(what, f"start a new run, with init_from={run.name} for its weights", run.path)
    recipe = read_settings(run)
    identity = {"run_id": run_id, "recipe": recipe, "resumed_with": list(resumed_with)}
    return identity | {"recipe_hash": recipe_hash(recipe, resumed_with)}


def require_resumable(run: Run, last: Checkpoint) -> None:
    """Raise an error if a checkpoint belongs to another run or recipe, or has no identity."""
    require_own(run, last)
    if recipe_hash(read_settings(run), last.info["resumed_with"]) != last.info["recipe_hash"]:
        raise _changed_settings_error(run, last.info["recipe"])


def require_own(run: Run, last: Checkpoint) -> None:
    """Raise an error if a checkpoint belongs to another run, or has no identity."""
    where, fix = last.path, f"start a new run, with init_from={run.name} to start from its weights"
    needed = IDENTITY_KEYS if last.info.get("snapshot") else (*IDENTITY_KEYS, *POSITION_KEYS)
    if missing := [name for name in needed if name not in last.info]:
        what = f"the checkpoint {last.name} has no {missing[0]}: it was written by an older release"
        raise TownletError(what, fix, where)
    meta = run.meta()
    if last.info["run_id"] != meta.get("run_id"):
        fix = "use a checkpoint of this run, or start a new run with init_from"
        raise TownletError(f"the checkpoint {last.name} belongs to another run", fix, where)
    overrides = list(last.info["resumed_with"])
    if meta.get("resumed_with", [])[: len(overrides)] != overrides:
        what = f"the checkpoint {last.name} was resumed with {' '.join(overrides)}, but meta.json does not record it"
        raise TownletError(what, "restore meta.json from a backup", run.meta_file)


def require_files(run: Run) -> None:
    """Raise an error if settings or worlds were changed since the run started. Older runs have no checksums."""
    require_settings(run)
    for name in changed_files(run, run.meta()):
        if name.startswith("worlds/"):
            what = f"the {Path(name).stem} world of the run {run.name} was changed after the run started"
            fix = "restore the original, or start a new run with init_from"
            raise TownletError(what, fix, run.path / name)


def require_settings(run: Run) -> None:
    """Raise an error if the settings in resolved.yaml were changed since the run started."""
    wanted = run.meta().get("recipe_hash")
    if wanted is not None and recipe_hash(read_settings(run)) != wanted:
        last = None
        with suppress(TownletError):  # without the checkpoint, the error does not name the changed setting
            last = checkpoint.latest(run.checkpoints)
        raise _changed_settings_error(run, last.info.get("recipe") if last else None)


def checksums(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """The sha256 of some files below a folder, by name."""
    return {name: sha256(folder / name) for name in names}


def format_checksums(sums: Mapping[str, str]) -> bytes:
    """Checksums by name, as `sha256sum` writes them, so that `sha256sum -c` can check them too."""
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()


def read_checksums(path: Path) -> dict[str, str]:
    """Checksums by name from a `sha256sum` file; a malformed line becomes a name whose checksum matches nothing."""
    lines = disk.read_bounded(path, MAX_BYTES).decode("utf-8", "replace").splitlines()
    return {name or line: digest for line in lines for digest, _, name in [line.partition("  ")]}


def changed_files(run: Run, meta: Mapping[str, Any]) -> list[str]:
    """Files with a checksum in meta.json that were changed or removed, and worlds without a checksum."""
    known: Mapping[str, str] = meta.get("files") or {}
    changed = [name for name, wanted in known.items() if sha256_or_none(run.path, name) != wanted]
    if known and run.worlds.is_dir():
        changed += [f"worlds/{p.name}" for p in sorted(run.worlds.iterdir()) if f"worlds/{p.name}" not in known]
    return changed


def differences(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield settings that differ as (path, before, after); None where a key is missing."""
    for key in {**before, **after}:
        a, b, place = before.get(key), after.get(key), f"{path}.{key}" if path else key
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differences(a, b, place)
        elif _canonical(a) != _canonical(b):
            yield place, a, b


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_or_none(folder: Path, name: str) -> str | None:
    """The sha256 of a file; None where there is no such regular file below the folder."""
    path = folder / name
    with suppress(OSError):
        if not path.is_symlink() and path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            return sha256(path)
    return None


def _changed_settings_error(run: Run, before: Any) -> TownletError:
    """The error for an edited resolved.yaml, with the first differing setting if the old ones are known."""
    found = next(differences(before, read_settings(run)), None) if isinstance(before, Mapping) else None
    difference = "" if found is None else f": {found[0]} is {_format_value(found[2])} and was {_format_value(found[1])}"
    what = f"resolved.yaml was changed after the run started{difference}"
    fix = (
        "restore the original. To change a setting, use an override, which is recorded: townlet train --resume "
        f"{run.name} key=value; settings that cannot be overridden need a new run, with init_from={run.name}"
    )
    return TownletError(what, fix, run.resolved_file)


def _format_value(value: Any) -> str:
    return "missing" if value is None else json.dumps(value)[:60]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def flat_settings(run: Run) -> dict[str, Any]:
    """Every setting of a run by its path, as in agent.lr."""
    flat: dict[str, Any] = {}

    def add(path: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, below in value.items():
                add(f"{path}.{key}" if path else key, below)
        else:
            flat[path] = "null" if value is None else value  # as in YAML; None stands for missing keys

    require_settings(run)
    resolved = apply_overrides(read(run.resolved_file), run.meta().get("resumed_with", ())).to_python()
    add("", {key: value for key, value in resolved.items() if key not in DESCRIPTIVE_KEYS})
    return flat


def experiment_hash(run: Run) -> str:
    """A sha256 that is equal for runs that differ only in `PER_RUN_KEYS`, such as the seed."""
    shared = {path: value for path, value in flat_settings(run).items() if path.split(".")[0] not in PER_RUN_KEYS}
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()


def differing_settings(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Settings that are not the same in all runs, each with its values; None where a run has no such key."""
    all_settings = [flat_settings(run) for run in runs]
    keys = dict.fromkeys(key for settings in all_settings for key in settings)
    values = {key: [settings.get(key) for settings in all_settings] for key in keys}
    return {key: found for key, found in values.items() if any(value != found[0] for value in found)}


def describe_machine(release: str) -> dict[str, Any]:
    """Command, versions, machine and commit, for meta.json."""
    return {
        "command": _command(),
        "versions": {"townlet": release, **{name: _version(name) for name in PACKAGES}},
        "python": platform.python_version(),
        "machine": this_machine(),
        "commit": _commit(),
    }


def this_machine() -> dict[str, str]:
    """System and processor, by which runs of other machines are recognized."""
    return {"system": platform.platform(), "processor": platform.machine()}


def without_passwords(text: str) -> str:
    """The text without the passwords of URLs such as postgresql://name:password@host."""
    return URL_PASSWORD.sub(r"\1***\2", text)


def _version(name: str) -> str | None:
    """The version of a package; None if it is not installed or has no metadata."""
    with suppress(PackageNotFoundError):
        return version(name)
    return None


def _command() -> str:
    """The command line; "" if the run was started by another program."""
    typed = "townlet" in Path(sys.argv[0]).parts[-2:]
    return without_passwords(" ".join(["townlet", *sys.argv[1:]])) if typed else ""


def _commit() -> str | None:
    """The commit of the source tree; None if it is not a Git repository."""
    command, folder = ["git", "rev-parse", "HEAD"], Path(__file__).parent
    with suppress(OSError, subprocess.TimeoutExpired):
        # `git` is found on PATH, as on the command line
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=5)
        return done.stdout.strip() or None
    return None
