"""What meta.json may say of a run. Readers rely on these types, so that a wrong one is told once and by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from townlet.errors import Mark, TownletError


class Meta(BaseModel):
    """Every key may be missing, as in runs of older releases; further ones are kept as they are."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

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


def checked(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """What was read, once every known key has a value of its type."""
    try:
        Meta.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        what = f"'{place}' in {path.name} is not what it should be: {first['msg']}"
        raise TownletError(
            what, "mend that value in the file, or take the file from a backup", Mark(str(path))
        ) from None
    return found
