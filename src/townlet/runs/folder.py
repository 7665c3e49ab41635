"""The folder of a run: which file lies where, how runs are made, named and found."""

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

from townlet.errors import TownletError, did_you_mean
from townlet.runs import disk
from townlet.runs.flatten import plain
from townlet.runs.meta import opened, sealed
from townlet.runs.strict_json import parse

LATEST: Final = "latest"
SHIPPED: Final = Path(__file__).parents[1] / "trained"  # agents to look at before anything was trained
MAX_META: Final = 4 << 20


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
            raise disk.explained(error, f"cannot make a run in {root}") from error
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
            raise disk.explained(error, f"cannot list {root}") from error
        return sorted(found, key=lambda run: (run._created(), run.name))

    def meta(self) -> dict[str, Any]:
        """What is known about the run: versions, machine, command line, seeds, hashes (see `Meta`)."""
        return opened(parse(disk.read_bounded(self.meta_file, MAX_META), self.meta_file), self.meta_file)

    def write_meta(self, meta: dict[str, Any]) -> None:
        """Replace meta.json atomically, with its checksum."""
        text = json.dumps(sealed(plain(meta, "meta")), indent=2, ensure_ascii=False, allow_nan=False)
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
