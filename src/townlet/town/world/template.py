"""New worlds: a short commented file that extends another world, and its JSON Schema for editors."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final

from townlet.config.models import json_schema
from townlet.errors import TownletError
from townlet.town.world.load import load, shipped
from townlet.town.world.schema import WorldSpec

SCHEMA_FILE: Final = "world.schema.json"

_TEXT: Final = """\
# yaml-language-server: $schema={schema}
# Everything as in {parent}, with the changes below.
# Check it with `townlet world check {name}.yaml`; see the result with `townlet world show {name}.yaml`.
extends: {extends}
description: {description}
max_steps: {max_steps} # an episode is truncated after this many steps

# Entries merge by name: write only what changes; the rest stays as in {parent}.
meters:
  # loss per step (decay), and what a move and WAIT cost in addition
  - {{name: {meter}, decay: {decay!r}, move: {move!r}, wait: {wait!r}}}

affordances:
  # the price of one tick in the currency; a complete use takes `ticks` of them
  - {{name: {priced}, price: {price!r}, ticks: {ticks}}}
  # open from the first hour until the second; only with `clock.temporal: true`
{hours}

# This list replaces the inherited one. Others: survival, vitality, potential, meter_bonus, proximity.
rewards: {rewards}

# clock: {{temporal: true}} # using an affordance takes several steps, and affordances have opening hours
# remove: [{last}] # inherited meters, affordances, cascades or modulations to drop
"""


def new_world(name: str, parent: str = "town", folder: Path = Path()) -> Path:
    """Write NAME.yaml and its schema to a folder and return its path; never overwrites a file."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", name):
        fix = "use at most 40 letters, digits, - and _, starting with a letter"
        raise TownletError(f"'{name[:60]}' is not a valid name", fix)
    if name in shipped():
        raise TownletError(f"'{name}' is the name of a shipped world", "choose another")
    path = folder / f"{name}.yaml"
    content = template_text(name, parent, folder)
    if folder.exists() and not folder.is_dir():
        raise TownletError(f"{folder} is a file, not a folder", "choose a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(content)
        if not (folder / SCHEMA_FILE).exists():
            (folder / SCHEMA_FILE).write_text(json.dumps(world_schema(), indent=2) + "\n", encoding="utf-8")
    except FileExistsError:
        raise TownletError(f"{path} already exists", "choose another name or remove it first") from None
    except OSError as error:
        raise TownletError(f"cannot write {path}: {error.strerror}", "choose another folder") from None
    return path


def template_text(name: str, parent: str = "town", folder: Path = Path()) -> str:
    """The text of the new file; without edits it behaves exactly like its parent."""
    world = load(parent)
    spec = world.spec
    meter = next(m for m in spec.meters if m.name == spec.lethal[0])
    priced = next((a for a in spec.affordances if a.price), spec.affordances[0])
    timed = next((a for a in spec.affordances if a.hours and a is not priced), None)
    hours = "  # add `hours: [8, 18]` to an affordance"
    if timed is not None:
        hours = f"  - {{name: {_yaml_string(timed.name)}, hours: {list(timed.hours or ())}}}"
    rewards = [r.model_dump(mode="json", exclude_defaults=True) for r in spec.rewards]
    return _TEXT.format(
        name=name,
        schema=SCHEMA_FILE,
        parent=world.name,
        extends=parent if parent in shipped() else json.dumps(Path(os.path.relpath(parent, folder)).as_posix()),
        description=json.dumps(f"A variant of {world.name}."),
        max_steps=spec.max_steps,
        meter=_yaml_string(meter.name),
        decay=meter.decay,
        move=meter.move,
        wait=meter.wait,
        priced=_yaml_string(priced.name),
        price=priced.price,
        ticks=priced.ticks,
        hours=hours,
        rewards=json.dumps([r if len(r) > 1 else r["name"] for r in rewards]),
        last=_yaml_string(spec.affordances[-1].name),
    )


def world_schema() -> dict[str, Any]:
    """JSON Schema of world files, for editors."""
    names = {"type": "array", "items": {"type": "string"}}
    extra = {
        "extends": {"type": "string", "description": "The world to extend: a shipped name or the path of a file."},
        "remove": names | {"description": "Inherited meters, affordances, cascades or modulations to drop."},
    }
    return json_schema(WorldSpec, extra)


def _yaml_string(name: str) -> str:
    """A name as a YAML string, quoted if it could be read as something else."""
    plain = re.fullmatch(r"[A-Za-z]\w*", name) and name.lower() not in ("true", "false", "null")
    return name if plain else json.dumps(name)
