"""What meta.json may say of a run. Readers rely on these types, so that a wrong one is told once and by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from townlet.errors import Mark, TownletError


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


FORMAT: Final = 2  # files of format 1 had neither a format nor a checksum
SEAL: Final = ("format", "sha256")


def sealed(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The content of meta.json: what is known, with its format and checksum."""
    return {"format": FORMAT, **meta, "sha256": _digest(meta)}


def opened(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """What is known, once its types and its checksum are right. A file of format 1 has no checksum."""
    meta = {key: value for key, value in checked(found, path).items() if key not in SEAL}
    if not any(key in found for key in SEAL):
        return meta
    if found.get("format") != FORMAT:
        what = f"{path.name} has format {str(found.get('format'))[:20]}, but this release reads format {FORMAT}"
        raise TownletError(what, "use the release that wrote it, or restore it from a backup", Mark(str(path)))
    if found.get("sha256") != _digest(meta):
        what = f"{path.name} was changed or damaged: it does not match its own checksum"
        fix = f"restore it from a backup, or accept it as it is: townlet runs verify {path.parent} --reseal"
        raise TownletError(what, fix, Mark(str(path)))
    return meta


def _digest(meta: Mapping[str, Any]) -> str:
    text = json.dumps({"format": FORMAT, **meta}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def checked(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """What was read, once every known key has a value of its type."""
    try:
        Meta.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        what = f"'{place}' in {path.name} is not what it should be: {first['msg']}"
        raise TownletError(
            what, "correct that value in the file, or restore the file from a backup", Mark(str(path))
        ) from None
    return found
