"""The settings of a run, flat, and a hash by which runs of one experiment are known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from townlet.config.overrides import apply
from townlet.config.yaml import read
from townlet.runs import seal
from townlet.runs.folder import Run

ABOUT: Final = ("description", "result", "tuned")  # words for people, not settings
# What may differ between runs of one experiment: the seed, and how it is computed and written down.
APART: Final = ("seed", "threads", "metrics", "checkpoints", "video")


def settings(run: Run) -> dict[str, Any]:
    """Every setting of a run by its path, as in agent.lr."""
    flat: dict[str, Any] = {}

    def add(path: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, below in value.items():
                add(f"{path}.{key}" if path else key, below)
        else:
            flat[path] = "null" if value is None else value  # as YAML says it; None is left for keys that are not there

    seal.require_settings(run)
    whole = apply(read(run.resolved_file), run.meta().get("resumed_with", ())).plain()
    add("", {key: value for key, value in whole.items() if key not in ABOUT})
    return flat


def experiment_hash(run: Run) -> str:
    """The same for runs that differ in their seed alone, sha256."""
    same = {path: value for path, value in settings(run).items() if path.split(".")[0] not in APART}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()
