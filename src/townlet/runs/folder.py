"""What meta.json may say of a run. Readers rely on these types, so that a wrong one is told once and by name."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from townlet.errors import SourceLocation, TownletError, did_you_mean
from townlet.runs import disk
from townlet.runs.serialization import json_value, parse_json


class Meta(BaseModel):
    """Every key may be missing, as in runs of older releases; further ones are kept as they are."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    run_id: str | None = None  # random; every checkpoint of the run carries it
    recipe_hash: str | None = None  # of the settings that it began with, see `seal`
    files: dict[str, str] = {}  # sha256 of files that never change, by name
    created: str | None = None  # ISO 8601, UTC
    recipe: str | None = None  # ENV:VARIANT
    asked: str | None = None  # as it was written on the command line
    overrides: list[str] = []
    command: str | None = None
    seed: int | None = None
    threads: int | None = None
    init_from: dict[str, Any] | None = None  # whose weights it began with: run, checkpoint, env_steps, sha256
    sweep: dict[str, Any] | None = None  # the study and the number of the trial that it was
    env: str | None = None
    agent: str | None = None
    rows: int | None = None
    world: str | None = None  # hash of the world's content
    evaluation_world: str | None = None  # the same of the one that it is measured in
    interface: str | None = None  # hash of what is observed and done
    size: list[int] | None = None  # of the map, in cells
    places: dict[str, int] | None = None  # the cell of each affordance; None where every life has other places
    versions: dict[str, str] = {}
    python: str | None = None
    machine: dict[str, Any] = {}
    commit: str | None = None
    resumed_with: list[str] = []
    ended: str | None = None
    finished: bool | None = None
    diverged: str | None = None
    seconds: float | None = None
    summary: list[str] = []


META_FORMAT: Final = 2  # files of format 1 had neither a format nor a checksum
SEAL_KEYS: Final = ("format", "sha256")


def seal_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The content of meta.json: what is known, with its format and checksum."""
    return {"format": META_FORMAT, **meta, "sha256": _meta_digest(meta)}


def unseal_meta(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """What is known, once its types and its checksum are right. A file of format 1 has no checksum."""
    meta = {key: value for key, value in validate_meta(found, path).items() if key not in SEAL_KEYS}
    if not any(key in found for key in SEAL_KEYS):
        return meta
    if found.get("format") != META_FORMAT:
        what = f"{path.name} has format {str(found.get('format'))[:20]}, but this release reads format {META_FORMAT}"
        raise TownletError(
            what, "use the release that wrote it, or restore it from a backup", SourceLocation(str(path))
        )
    if found.get("sha256") != _meta_digest(meta):
        what = f"{path.name} was changed or damaged: it does not match its own checksum"
        fix = f"restore it from a backup, or accept it as it is: townlet runs verify {path.parent} --reseal"
        raise TownletError(what, fix, SourceLocation(str(path)))
    return meta


def _meta_digest(meta: Mapping[str, Any]) -> str:
    text = json.dumps({"format": META_FORMAT, **meta}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def validate_meta(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """What was read, once every known key has a value of its type."""
    try:
        Meta.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        what = f"'{place}' in {path.name} is not what it should be: {first['msg']}"
        raise TownletError(
            what, "correct that value in the file, or restore the file from a backup", SourceLocation(str(path))
        ) from None
    return found


LATEST: Final = "latest"
SHIPPED: Final = Path(__file__).parents[1] / "trained"  # agents to look at before anything was trained
MAX_META_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class Run:
    """All that one training left on disk. A folder with a `meta.json` is a run."""

    path: Path

    @property
    def name(self) -> str:
        """The folder's name: <env>-<variant>-<utc>-<id>."""
        return self.path.name

    @property
    def recipe_file(self) -> Path:
        """The recipe as it was asked for."""
        return self.path / "recipe.yaml"

    @property
    def resolved_file(self) -> Path:
        """Every setting with where it came from."""
        return self.path / "resolved.yaml"

    @property
    def tune_file(self) -> Path:
        """Settings of the agent, to be changed while it trains."""
        return self.path / "tune.yaml"

    @property
    def worlds(self) -> Path:
        """The folder of the run's own copies of its worlds."""
        return self.path / "worlds"

    @property
    def meta_file(self) -> Path:
        """Versions, machine, command line, seeds, hashes."""
        return self.path / "meta.json"

    @property
    def metrics_file(self) -> Path:
        """The metrics store."""
        return self.path / "metrics.db"

    @property
    def csv_file(self) -> Path:
        """The metrics as one table, on export."""
        return self.path / "metrics.csv"

    @property
    def log_file(self) -> Path:
        """What the console said."""
        return self.path / "log.txt"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard's files."""
        return self.path / "tensorboard"

    @property
    def feed_file(self) -> Path:
        """What it tells those who watch, while it trains."""
        return self.path / "live.feed"

    @property
    def videos(self) -> Path:
        """The folder of videos."""
        return self.path / "videos"

    @property
    def report_md(self) -> Path:
        """The report for a terminal or a forge."""
        return self.path / "report.md"

    @property
    def report_html(self) -> Path:
        """The report for a browser, in one file."""
        return self.path / "report.html"

    @property
    def report_seal(self) -> Path:
        """Checksums of the report's files, as sha256sum writes them."""
        return self.path / "report.sha256"

    @property
    def plots(self) -> Path:
        """The pictures that report.md shows."""
        return self.path / "plots"

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
        """A new run below `root`, which `root/latest` then points to. It appears whole or not at all."""
        now = datetime.now(UTC)
        name = f"{_slug(env)}-{_slug(variant)}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        fresh, run = cls(root / f".{name}"), cls(root / name)
        texts = {fresh.recipe_file.name: recipe_text.encode(), fresh.resolved_file.name: resolved_text.encode()}
        texts |= {f"worlds/{role}.yaml": text.encode() for role, text in (world_texts or {}).items()}
        checksums = {file: hashlib.sha256(text).hexdigest() for file, text in texts.items()}
        try:
            disk.make_folder(root)
            fresh.path.mkdir()
            disk.write_new(fresh.tune_file, tune_text.encode())
            if world_texts:
                fresh.worlds.mkdir()
            for file, text in texts.items():
                disk.write_new(fresh.path / file, text)
            if world_texts:
                disk.sync_folder(fresh.worlds)
            known = {"run_id": secrets.token_hex(16), "created": now.isoformat(), "files": checksums}
            fresh.write_meta(known | meta)
            fresh.checkpoints.mkdir()
            disk.sync_folder(fresh.path)  # everything in it is durable before the run gets its name
            os.rename(fresh.path, run.path)
            _point_to(root / LATEST, name)
            disk.sync_folder(root)
        except OSError as error:
            raise disk.describe_error(error, f"cannot make a run in {root}") from error
        finally:
            disk.remove_tree(fresh.path)
        return run

    @classmethod
    def open(cls, name_or_path: str | Path, root: Path = Path("runs")) -> Run:
        """A run by path, by name below `root`, as "latest", by a beginning that only one name has, or a shipped one."""
        word = str(name_or_path).rstrip("/")
        runs = cls.list(root)
        if word == LATEST and not (root / LATEST / "meta.json").is_file() and runs:
            return runs[-1]  # the link was lost, as when a folder is copied without links
        for place in (root / word, Path(word)):
            if word and (place / "meta.json").is_file():
                return cls(_direct(place, root))
        begin = [run for run in runs if word and run.name.startswith(word)]
        if len(begin) == 1:
            return begin[0]
        if begin:
            shown = ", ".join(run.name for run in begin[-4:])
            raise TownletError(f"{len(begin)} runs begin with '{word}'", f"write more of the name, like {shown}")
        shipped = {run.name: run for run in cls.list(SHIPPED)}
        if word in shipped:
            return shipped[word]
        hint = did_you_mean(word, [*(run.name for run in reversed(runs)), *shipped])
        if not runs and "did you mean" not in hint:
            hint = f"train one first, or take one that is shipped: {', '.join(shipped)}"
        raise TownletError(f"there is no run '{word}' in {root}", hint)

    @classmethod
    def list(cls, root: Path = Path("runs")) -> list[Run]:
        """All runs below `root`, oldest first."""
        if not root.is_dir():
            return []
        try:
            found = [cls(path) for path in root.iterdir() if _is_run(path)]
        except OSError as error:
            raise disk.describe_error(error, f"cannot list {root}") from error
        return sorted(found, key=lambda run: (run._created(), run.name))

    def meta(self) -> dict[str, Any]:
        """What is known about the run: versions, machine, command line, seeds, hashes (see `Meta`)."""
        return unseal_meta(
            parse_json(disk.read_bounded(self.meta_file, MAX_META_BYTES), self.meta_file), self.meta_file
        )

    def write_meta(self, meta: dict[str, Any]) -> None:
        """Replace meta.json atomically, with its checksum."""
        text = json.dumps(seal_meta(json_value(meta, "meta")), indent=2, ensure_ascii=False, allow_nan=False)
        disk.replace_file(self.meta_file, text.encode("utf-8", "replace") + b"\n")

    def note(self, **facts: Any) -> None:
        """Add facts to meta.json, such as when the run ended and why."""
        self.write_meta(self.meta() | facts)

    def _created(self) -> str:
        """When it was made. A run whose meta.json is damaged is listed first, and says so when it is opened."""
        try:
            return str(self.meta().get("created", ""))
        except TownletError:
            return ""


def _is_run(path: Path) -> bool:
    """Whether a folder is a run to be listed. A link counts when it leads elsewhere, as to another disk."""
    try:
        if path.name.startswith(".") or path.name == LATEST or not (path / "meta.json").is_file():
            return False
        return not path.is_symlink() or path.resolve().parent != path.parent.resolve()
    except OSError:
        return False  # it may not be looked into; it does not hide the others


def _direct(place: Path, root: Path) -> Path:
    """The folder itself where a link or "." was named, below `root` as it was written where it lies there."""
    if place.name not in ("", "..") and not place.is_symlink():
        return place
    found = place.resolve()
    return root / found.name if found.parent == root.resolve() else found


def _slug(word: str) -> str:
    """A part of a folder's name: letters, digits, "_" and "."; never hidden, never a way out."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", word).strip("-.") or "x"


def _point_to(link: Path, name: str) -> None:
    """Let the link point to the name beside it, in one instant. A folder of that name is left alone."""
    fresh = link.with_name(f".{link.name}-{secrets.token_hex(4)}")
    try:
        os.symlink(name, fresh, target_is_directory=True)
        os.replace(fresh, link)
    except OSError:
        fresh.unlink(missing_ok=True)  # some disks know no links; `open("latest")` finds the newest without it
