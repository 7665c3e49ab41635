"""The folder of a run: its files, meta.json, and how runs are created and found."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from townlet.errors import TownletError, did_you_mean
from townlet.runs import disk
from townlet.runs.serialization import json_value, parse_json

LATEST: Final = "latest"
SHIPPED: Final = Path(__file__).parents[1] / "trained"  # runs of the shipped agents
MAX_META_BYTES: Final = 4 << 20
META_FORMAT: Final = 3  # before: 1 had no format and no checksum, 2 the names of settings of version 0.1
SEAL_KEYS: Final = ("format", "sha256")


class Meta(BaseModel):
    """Content of meta.json. Every key may be missing, as in older runs; unknown keys are kept."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    run_id: str | None = None  # random; every checkpoint of the run carries it
    recipe_hash: str | None = None  # of the initial settings; see `provenance`
    files: dict[str, str] = {}  # sha256 of files that never change, by name
    created: str | None = None  # ISO 8601, UTC
    recipe: str | None = None  # ENV:VARIANT
    recipe_argument: str | None = None  # the recipe as named on the command line, perhaps a file
    overrides: list[str] = []
    command: str | None = None
    seed: int | None = None
    threads: int | None = None
    init_from: dict[str, Any] | None = None  # source of the initial weights: run, checkpoint, env_steps, sha256
    sweep: dict[str, Any] | None = None  # name of the sweep and number of the trial
    env: str | None = None
    agent: str | None = None
    rows: int | None = None
    world: str | None = None  # hash of the world
    evaluation_world: str | None = None  # hash of the world for evaluation
    interface: str | None = None  # hash of observations and actions
    size: list[int] | None = None  # of the map, in cells
    places: dict[str, int] | None = None  # cell of each affordance; None if layouts are shuffled
    versions: dict[str, str] = {}
    python: str | None = None
    machine: dict[str, Any] = {}
    commit: str | None = None
    resumed_with: list[str] = []  # overrides of all resumes
    ended: str | None = None  # why training ended
    finished: bool | None = None
    diverged: str | None = None  # which values were not finite
    seconds: float | None = None
    summary: list[str] = []
    wandb: str | None = None  # link to the run in Weights & Biases, or the command that uploads it


def unseal_meta(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """The content without format and checksum, after checking both and all types. Format 1 has no checksum."""
    meta = {key: value for key, value in validate_meta(content, path).items() if key not in SEAL_KEYS}
    if not any(key in content for key in SEAL_KEYS):
        return meta
    if content.get("format") != META_FORMAT:
        what = f"{path.name} has format {str(content.get('format'))[:20]}, but this release reads format {META_FORMAT}"
        raise TownletError(what, "use the release that wrote it, or restore it from a backup", path)
    if content.get("sha256") != _meta_digest(meta):
        what = f"{path.name} was changed or damaged: it does not match its own checksum"
        fix = f"restore it from a backup, or accept it as it is: townlet runs verify {path.parent} --reseal"
        raise TownletError(what, fix, path)
    return meta


def _meta_digest(meta: Mapping[str, Any]) -> str:
    text = json.dumps({"format": META_FORMAT, **meta}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def validate_meta(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """The same mapping; raises TownletError if a known key has a value of another type."""
    try:
        Meta.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        what = f"'{place}' in {path.name} is not valid: {first['msg']}"
        raise TownletError(what, "correct that value in the file, or restore the file from a backup", path) from None
    return content


class _RunPath:
    """A path inside a run's folder, as an attribute of `Run`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: Run, owner: type[Run]) -> Path:
        return run.path / self._name


@dataclass(frozen=True)
class Run:
    """A run on disk: a folder with a `meta.json`."""

    path: Path

    recipe_file = _RunPath("recipe.yaml")  # the recipe as it was given
    resolved_file = _RunPath("resolved.yaml")  # every setting with its source
    tune_file = _RunPath("tune.yaml")  # agent settings that may be edited during training
    worlds = _RunPath("worlds")  # copies of the worlds
    meta_file = _RunPath("meta.json")  # versions, machine, command line, seeds, hashes
    metrics_file = _RunPath("metrics.db")
    csv_file = _RunPath("metrics.csv")  # the metrics as a table
    log_file = _RunPath("log.txt")  # the console output
    checkpoints = _RunPath("checkpoints")
    snapshots = _RunPath("snapshots")  # policies at several steps, see `runs.snapshots`
    tensorboard = _RunPath("tensorboard")
    feed_file = _RunPath("live.feed")  # messages for viewers during training
    videos = _RunPath("videos")
    report_md = _RunPath("report.md")
    report_html = _RunPath("report.html")  # self-contained
    report_seal = _RunPath("report.sha256")  # checksums of the report's files, in the format of sha256sum
    plots = _RunPath("plots")  # images of report.md

    @property
    def name(self) -> str:
        """The folder's name: environment, variant, time (UTC) and a random id."""
        return self.path.name

    @property
    def has_checkpoint(self) -> bool:
        """Whether it has a checkpoint; a run whose training failed at its start has none."""
        return any(self.checkpoints.glob("step-*"))

    @classmethod
    def create(
        cls,
        root: Path,
        env: str,
        variant: str,
        recipe_text: str,
        resolved_text: str,
        meta: dict[str, Any],
        world_texts: Mapping[str, str] | None = None,
        tune_text: str = "",
    ) -> Run:
        """Create a run below `root` atomically, and point `root/latest` to it."""
        now = datetime.now(UTC)
        name = f"{_slug(env)}-{_slug(variant)}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        new, run = cls(root / f".{name}"), cls(root / name)
        texts = {new.recipe_file.name: recipe_text.encode(), new.resolved_file.name: resolved_text.encode()}
        texts |= {f"worlds/{role}.yaml": text.encode() for role, text in (world_texts or {}).items()}
        checksums = {file: hashlib.sha256(text).hexdigest() for file, text in texts.items()}
        try:
            disk.make_folder(root)
            new.path.mkdir(disk.PRIVATE)
            disk.write_new(new.tune_file, tune_text.encode())
            if world_texts:
                new.worlds.mkdir()
            for file, text in texts.items():
                disk.write_new(new.path / file, text)
            if world_texts:
                disk.sync_folder(new.worlds)
            identity = {"run_id": secrets.token_hex(16), "created": now.isoformat(), "files": checksums}
            new.write_meta(identity | meta)
            new.checkpoints.mkdir()
            disk.sync_folder(new.path)  # everything in it is durable before the run gets its name
            os.rename(new.path, run.path)
            _point_to(root / LATEST, name)
            disk.sync_folder(root)
        except OSError as error:
            raise disk.describe_error(error, f"cannot create a run in {root}") from error
        finally:
            disk.remove_tree(new.path)
        return run

    @classmethod
    def open(cls, name_or_path: str | Path, root: Path = Path("runs"), *, for_policy: bool = False) -> Run:
        """Find a run: a path, a name below `root` or a unique prefix of one, "latest", or a shipped run.

        For ENV:VARIANT, the newest run of that recipe. With `for_policy`, "latest" and ENV:VARIANT stand for the newest
        run that has a checkpoint. A run with links in its folder is refused.
        """
        run = cls._find(name_or_path, root, for_policy)
        disk.refuse_links(run.path)
        return run

    @classmethod
    def _find(cls, name_or_path: str | Path, root: Path, for_policy: bool) -> Run:
        name = str(name_or_path).rstrip("/")
        if ":" in name and not Path(name).exists():
            return cls._newest_of(name, root, for_policy)
        runs, shipped = cls.list(root), {run.name: run for run in cls.list(SHIPPED)}
        train_first = f"train one first, or use a shipped one: {', '.join(shipped)}"
        if name == LATEST and for_policy and runs:
            if trained := [run for run in runs if run.has_checkpoint]:
                return trained[-1]
            raise TownletError(f"no run in {root} has a trained agent yet", train_first)
        if name == LATEST and not (root / LATEST / "meta.json").is_file() and runs:
            return runs[-1]  # the link was lost, as when a folder is copied without links
        for place in (root / name, Path(name)):
            if name and (place / "meta.json").is_file():
                return cls(_resolve_link(place, root))
        matches = [run for run in runs if name and run.name.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            shown = ", ".join(run.name for run in matches[-4:])
            raise TownletError(f"{len(matches)} runs start with '{name}'", f"write more of the name, like {shown}")
        if name in shipped:
            return shipped[name]
        hint = did_you_mean(name, [*(run.name for run in reversed(runs)), *shipped])
        if not runs and "did you mean" not in hint:
            hint = train_first
        raise TownletError(f"there is no run '{name}' in {root}", hint)

    @classmethod
    def list(cls, root: Path = Path("runs")) -> list[Run]:
        """All runs below `root`, oldest first."""
        if not root.is_dir():
            return []
        with disk.os_errors(f"cannot list {root}"):
            runs = [cls(path) for path in root.iterdir() if _is_run(path)]
        return sorted(runs, key=lambda run: (run._created(), run.name))

    @classmethod
    def _newest_of(cls, recipe: str, root: Path, for_policy: bool) -> Run:
        found: list[Run] = []  # oldest first
        for run in cls.list(root):
            with suppress(TownletError):  # a damaged meta.json
                meta = run.meta()
                if recipe in (meta.get("recipe"), meta.get("recipe_argument")):
                    found.append(run)
        if for_policy:
            found = [run for run in found if run.has_checkpoint] or found
        if found:
            return found[-1]
        raise TownletError(f"there is no run of {recipe} in {root}", f"train it: townlet train {recipe}")

    def withdraw(self) -> None:
        """Stop being the latest run if training failed before the first checkpoint."""
        link = self.path.with_name(LATEST)
        if self.has_checkpoint or not link.is_symlink() or link.resolve() != self.path.resolve():
            return
        before = [run for run in self.list(self.path.parent) if run.has_checkpoint]
        if before:
            _point_to(link, before[-1].name)
        else:
            link.unlink()

    def meta(self) -> dict[str, Any]:
        """The content of meta.json: versions, machine, command line, seeds, hashes (see `Meta`)."""
        text = disk.read_bounded(self.meta_file, MAX_META_BYTES)
        return unseal_meta(parse_json(text, self.meta_file), self.meta_file)

    def write_meta(self, meta: dict[str, Any]) -> None:
        """Replace meta.json atomically, with its checksum."""
        content = json_value(meta, "meta")
        sealed = {"format": META_FORMAT, **content, "sha256": _meta_digest(content)}
        text = json.dumps(sealed, indent=2, ensure_ascii=False, allow_nan=False)
        disk.replace_file(self.meta_file, text.encode("utf-8", "replace") + b"\n")

    def update_meta(self, **entries: Any) -> None:
        """Add entries to meta.json, such as when the run ended and why."""
        self.write_meta(self.meta() | entries)

    def _created(self) -> str:
        """When the run was created; "" if meta.json is damaged, which `meta` reports."""
        try:
            return str(self.meta().get("created", ""))
        except TownletError:
            return ""


def _is_run(path: Path) -> bool:
    """Whether a folder is a run to list. A link counts only if it leads elsewhere, such as to another disk."""
    try:
        if path.name.startswith(".") or path.name == LATEST or not (path / "meta.json").is_file():
            return False
        return not path.is_symlink() or path.resolve().parent != path.parent.resolve()
    except OSError:
        return False  # not readable; the other runs are still listed


def _resolve_link(place: Path, root: Path) -> Path:
    """The folder that a link, "." or ".." leads to; given as a path below `root` if it is there."""
    if place.name not in ("", "..") and not place.is_symlink():
        return place
    found = place.resolve()
    return root / found.name if found.parent == root.resolve() else found


def _slug(word: str) -> str:
    """A part of a folder name: everything but letters, digits, "_" and "." becomes "-"."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", word).strip("-.") or "x"


def _point_to(link: Path, name: str) -> None:
    """Create or replace a link to `name` atomically; a folder at the path of the link is left alone."""
    new = link.with_name(f".{link.name}-{secrets.token_hex(4)}")
    try:
        os.symlink(name, new, target_is_directory=True)
        os.replace(new, link)
    except OSError:
        new.unlink(missing_ok=True)  # on a file system without links `open("latest")` finds the newest run
