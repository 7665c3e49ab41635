"""Editing of worlds in the page: changes by mouse, checks of texts, what an agent must relearn, and the verdict."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field

from townlet.config.merge import entry_name
from townlet.config.yaml import Node, parse
from townlet.errors import ConfigError, Diagnostic, SourceLocation, TownletError
from townlet.live.messages import Message
from townlet.runs import disk
from townlet.tasks.transfer import map_interface, obstacles
from townlet.town.feasibility import assess, survival_sentences
from townlet.town.world import edits
from townlet.town.world.load import from_node, load, shipped
from townlet.town.world.tables import World

EDITED_FILE: Final = "edited.yaml"  # file name in messages about an edited text
WORLD_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")
NUMBERED_NAME: Final = re.compile(r"(.*?)(?:-(\d{1,4}))?", re.DOTALL)
MAX_NAME: Final = 40  # characters
VERDICT_ROWS: Final = 24  # episodes that the planner plays for a verdict: about half a second

Section = Literal["affordances", "meters"]
EntryName = Annotated[str, Field(min_length=1, max_length=40)]
Value = bool | int | float | str | list[Any] | None


class SetValue(Message):
    """Set a value; null restores the inherited or default one."""

    op: Literal["set"] = "set"
    path: list[EntryName] = Field(
        min_length=1, max_length=4, description="Keys; the name of an entry counts as one: affordances, Bed, price."
    )
    value: Value


class AddEntry(Message):
    """Add an affordance or a meter."""

    op: Literal["add"] = "add"
    section: Section
    entry: dict[str, Any]


class RemoveEntry(Message):
    """Remove an affordance or a meter."""

    op: Literal["remove"] = "remove"
    section: Section
    name: EntryName


class RenameEntry(Message):
    """Rename an affordance or a meter of the edited text."""

    op: Literal["rename"] = "rename"
    section: Section
    name: EntryName
    to: EntryName


Change = Annotated[SetValue | AddEntry | RemoveEntry | RenameEntry, Field(discriminator="op")]


def apply_change(text: str, change: Change) -> str:
    """The text of a world with a change; its comments and layout are kept."""
    try:
        return _edit(text, change)
    except TownletError:
        parse_world(text)  # the errors of an invalid text say more
        raise


def _edit(text: str, change: Change) -> str:
    match change:
        case SetValue():
            return edits.set_value(text, change.path, change.value)
        case AddEntry():
            return edits.add_entry(text, change.section, change.entry)
        case RemoveEntry():
            return edits.remove_entry(text, change.section, change.name)
        case RenameEntry():
            return edits.rename_entry(text, change.section, change.name, change.to)


def parse_world(text: str) -> World:
    """Parse and validate an edited world, which may extend shipped worlds but no other file."""
    node = parse(text, EDITED_FILE)
    parent = node.child("extends") if isinstance(node.value, dict) else None
    if parent is not None and parent.value not in shipped():
        what, fix = "a world edited in the page can extend only shipped worlds", f"known: {', '.join(shipped())}"
        raise ConfigError([Diagnostic(what, fix, parent.location)])
    return from_node(node, EDITED_FILE)


def error_json(error: Diagnostic, text: str) -> dict[str, Any]:
    """An error with its place in the edited text: line and column (0 where unknown), and path as in `set`.

    An error in a world that the text extends has neither.
    """
    where, what = error.where, error.what
    if where is None or where.source == EDITED_FILE:
        line, column = (where.line, where.column) if where else (0, 0)
        path = _path_at(_parsed(text), where) if where else None
        return {"line": line, "column": column, "path": path or [], "what": what, "fix": error.fix}
    at = f", line {where.line}" if where.line else ""
    what = f"in {Path(where.source).name}, which this world extends{at}: {what}"
    return {"line": 0, "column": 0, "path": [], "what": what, "fix": error.fix}


def _parsed(text: str) -> Node | None:
    try:
        return parse(text, EDITED_FILE)
    except ConfigError:
        return None


def _path_at(node: Node | None, where: SourceLocation) -> list[str] | None:
    """Path of the innermost value that is at a location, or has its key there; entries of lists by name."""
    if node is None:
        return None
    children: list[tuple[str, Node]] = []
    if isinstance(node.value, dict):
        children = list(node.value.items())
    elif isinstance(node.value, list):
        children = [(entry_name(entry) or str(index), entry) for index, entry in enumerate(node.value)]
    for key, child in children:
        if (below := _path_at(child, where)) is not None:
            return [key, *below]
    return [] if where in (node.location, node.key_location) else None


class InterfaceChanges(NamedTuple):
    """What an edited world means for an agent that was trained in another one."""

    differences: list[str]  # why it cannot play there, in sentences; [] if it can
    unobserved: tuple[str, ...] = ()  # places and meters that it does not see there
    missing: tuple[str, ...] = ()  # places of its training that do not exist there


def interface_changes(world: World, trained_in: World) -> InterfaceChanges:
    """What a world means for an agent that was trained in another one."""
    if found := obstacles(world, trained_in):
        return InterfaceChanges([f"{clause[0].upper()}{clause[1:]}." for clause in found])
    mapping = map_interface(world, trained_in, trained_in.name)
    return InterfaceChanges([], mapping.unobserved, mapping.missing) if mapping else InterfaceChanges([])


def verdict(world: World) -> tuple[bool, list[str]]:
    """Whether an agent can survive in the world, and what scripted agents reach there, in sentences."""
    result = assess(world, VERDICT_ROWS)
    return result.livable, survival_sentences(result)


def palette() -> list[dict[str, Any]]:
    """The affordances of the standard town, to be added to other worlds."""
    entries = load("town").spec.affordances
    return [entry.model_dump(mode="json", exclude_defaults=True, exclude={"cell"}) for entry in entries]


def store_world(folder: Path, name: str, text: str) -> Path:
    """Save a world under the name, or under the next free one; the same text under that name is not saved twice."""
    require_valid_world(name, text)
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        path = folder / f"{free_name(folder, name, text)}.yaml"
        if _holds(path, text):
            return path
        with suppress(FileExistsError):  # another request has just taken the name
            disk.write_new(path, text.encode())
            return path


def save_world(folder: Path, name: str, text: str) -> Path:
    """Write a new world; an existing file is never overwritten."""
    require_valid_world(name, text)
    path = folder / f"{name}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        disk.write_new(path, text.encode())
    except FileExistsError:
        raise TownletError(f"{path.name} already exists", "choose another name") from None
    return path


def free_name(folder: Path, name: str, text: str) -> str:
    """The name, or the next one with a number, such as my-town-2, under which the text is saved or can be saved."""
    base, number = NUMBERED_NAME.fullmatch(name[:MAX_NAME]).groups()  # type: ignore[union-attr]
    numbers = range(int(number or 1) + 1, 10_000)
    for candidate in (name, *(f"{base[: MAX_NAME - 5]}-{number}" for number in numbers)):
        path = folder / f"{candidate}.yaml"
        if candidate not in shipped() and (not os.path.lexists(path) or _holds(path, text)):
            return candidate
    raise TownletError(f"there are too many worlds named {base}", "choose another name")


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def require_valid_world(name: str, text: str) -> None:
    """Raise an error if a world cannot be saved under this name, or has errors."""
    if not WORLD_NAME.fullmatch(name):
        what = f"'{name[:MAX_NAME]}' is not a valid name for a world"
        raise TownletError(what, "use lowercase letters, digits and dashes, starting with a letter")
    if name in shipped():
        raise TownletError(f"'{name}' is a shipped world and cannot be overwritten", "choose another name")
    parse_world(text)
