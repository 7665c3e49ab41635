"""Edits of the YAML text of a world that keep its comments and layout.

Any text and any edit is possible: the result may be an invalid world, and what cannot be edited is a `TownletError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from pydantic import BaseModel
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import LiteralScalarString

from townlet.errors import TownletError, did_you_mean
from townlet.town.world.load import NAMED_LISTS, load, shipped
from townlet.town.world.schema import Affordance, Cascade, Meter, Modulation
from townlet.town.world.yaml_text import NAME_KEYS, dump, flow, load_document, name_of, new_entry, rounded

Path = Sequence[str]  # keys; an entry of a list of named things is a key, as in affordances, Bed, price
KINDS: Final[Mapping[str, type[BaseModel]]] = {
    "meters": Meter, "affordances": Affordance, "modulations": Modulation, "cascades": Cascade,
}  # fmt: skip
PLACED: Final = "cell"  # stays as inherited unless an entry has its own


def set_value(text: str, path: Path, value: Any) -> str:
    """The text with a value at the path, or without it if the value is None; numbers are rounded."""
    document = _load(text)
    section = path[0]
    if section not in NAMED_LISTS:
        _set(document, path, value)
        return dump(document)
    if len(path) < 3 or path[2] in NAME_KEYS:
        raise TownletError(f"{', '.join(path)} cannot be set", "add, remove or rename an entry, or set one of its keys")
    entry = _own_entry(document, section, path[1])
    if entry is None:
        _require_inherited(document, section, path[1])
        entry = _append(document, section, _link_ends(path[1]) or {"name": path[1]})
    _set(entry, path[2:], value)
    if set(entry) <= set(NAME_KEYS) and path[1] in _inherited_names(document, section):
        _delete_entry(document, section, path[1])
    return dump(document)


def add_entry(text: str, section: str, entry: Mapping[str, Any]) -> str:
    """The text with another meter, affordance or link; an inherited one that was removed is restored."""
    document = _load(text)
    name = name_of(entry)
    if not isinstance(entry.get("name", ""), str) or name == "None->None":
        raise TownletError(f"a new entry of {section} needs a name", "give it a `name`")
    if name in _known(document, section):
        raise TownletError(f"there is already '{name}' in {section}", "choose another name")
    if name in _removed_names(document):
        _restore(document, section, name)
        entry = _changes(entry, _inherited(document, section).get(name, {}), KINDS[section])
    if set(entry) - set(NAME_KEYS) or name not in _inherited_names(document, section):
        _append(document, section, entry)
    return dump(document)


def remove_entry(text: str, section: str, name: str) -> str:
    """The text without a meter, affordance or link; an inherited one is listed under `remove`."""
    document = _load(text)
    own, inherited = name in _own_names(document, section), name in _inherited_names(document, section)
    if not own and not inherited:
        raise TownletError(f"there is no '{name}' in {section}", did_you_mean(name, _known(document, section)))
    if own:
        _delete_entry(document, section, name)
    if inherited:
        if document.get("remove") is None:
            document["remove"] = flow([])
        document["remove"].append(name)
    return dump(document)


def rename_entry(text: str, section: str, name: str, new: str) -> str:
    """The text with another name for one of its own affordances or meters; inherited ones cannot be renamed."""
    document = _load(text)
    entry = _own_entry(document, section, name)
    if entry is None or name in _inherited_names(document, section):
        raise TownletError(f"'{name}' is inherited and cannot be renamed", "remove it, and add one with another name")
    if new in _known(document, section):
        raise TownletError(f"there is already '{new}' in {section}", "choose another name")
    entry["name"] = new
    return dump(document)


def _load(text: str) -> CommentedMap:
    """The document, if its lists of named things are lists; a mapping in their place would be lost by an edit."""
    document = load_document(text)
    for key in (*NAMED_LISTS, "remove"):
        if not isinstance(document.get(key), CommentedSeq | None):
            raise TownletError(f"`{key}` is not a list here and can be changed only by hand", "write it as a list")
    return document


# Entries that are inherited


def _parent(document: CommentedMap) -> str | None:
    """Name of the shipped world that the text extends."""
    parent = document.get("extends")
    return str(parent) if isinstance(parent, str) and parent in shipped() else None


@lru_cache(maxsize=64)
def _entries(parent: str, section: str) -> dict[str, dict[str, Any]]:
    """The settings of all entries of a shipped world, by name."""
    return {name_of(entry): entry for entry in load(parent).spec.model_dump(mode="json", by_alias=True)[section]}


def _inherited(document: CommentedMap, section: str) -> dict[str, dict[str, Any]]:
    """Entries of the world that the text extends, also those that it removes."""
    parent = _parent(document)
    return _entries(parent, section) if parent is not None and section in NAMED_LISTS else {}


def _inherited_names(document: CommentedMap, section: str) -> list[str]:
    removed = _removed_names(document)
    return [name for name in _inherited(document, section) if name not in removed]


def _known(document: CommentedMap, section: str) -> list[str]:
    """Names of all entries of the world."""
    own = [name for name in _own_names(document, section) if name is not None]
    return [*dict.fromkeys([*_inherited_names(document, section), *own])]


def _require_inherited(document: CommentedMap, section: str, name: str) -> None:
    known = _inherited_names(document, section)
    if name not in known:
        raise TownletError(f"there is no '{name}' in {section}", did_you_mean(name, known))


def _removed_names(document: CommentedMap) -> set[str]:
    return {name for name in document.get("remove") or () if isinstance(name, str)}


def _restore(document: CommentedMap, section: str, name: str) -> None:
    """Take a name off `remove`."""
    removed = document["remove"]
    while name in removed:
        removed.remove(name)
    if not removed:
        del document["remove"]


def _changes(entry: Mapping[str, Any], inherited: Mapping[str, Any], kind: type[BaseModel]) -> dict[str, Any]:
    """The keys of an entry that differ from those of the inherited one; keys that it lacks have their defaults."""
    fields = {info.alias or key: info for key, info in kind.model_fields.items() if not info.is_required()}
    defaults = {key: info.get_default(call_default_factory=True) for key, info in fields.items()}
    if PLACED not in entry:
        defaults.pop(PLACED, None)
    changed = {key: entry[key] for key in NAME_KEYS if key in entry}
    for key, value in {**defaults, **entry}.items():
        before = inherited.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):  # they merge key by key
            value = {part: value.get(part, 0) for part in {**before, **value}}
            value = {part: by for part, by in value.items() if by != before.get(part)}
            before = {}
        if key not in NAME_KEYS and value != before:
            changed[key] = value
    return changed


# Entries of the text


def _own_names(document: CommentedMap, section: str) -> list[str | None]:
    return [_own_name(entry) for entry in document.get(section) or ()]


def _own_name(entry: Any) -> str | None:
    return name_of(entry) if isinstance(entry, Mapping) else entry if isinstance(entry, str) else None


def _own_entry(document: CommentedMap, section: str, name: str) -> CommentedMap | None:
    """The text's own entry; one that is only a name becomes a mapping."""
    entries = document.get(section) or []
    for index, entry in enumerate(entries):
        if _own_name(entry) == name:
            if not isinstance(entry, CommentedMap):
                entries[index] = flow({"name": name})
            found: CommentedMap = entries[index]
            return found
    return None


def _delete_entry(document: CommentedMap, section: str, name: str) -> None:
    entries = document[section]
    del entries[_own_names(document, section).index(name)]
    if not entries:
        del document[section]


def _append(document: CommentedMap, section: str, entry: Mapping[str, Any]) -> CommentedMap:
    """Add an entry to a section of the text, on a line of its own; returns it."""
    if document.get(section) is None:
        document[section] = CommentedSeq()
    added: CommentedMap = new_entry(rounded(entry))
    document[section].append(added)
    return added


def _link_ends(name: str) -> dict[str, str]:
    source, arrow, target = name.partition("->")
    return {"source": source, "target": target} if arrow else {}


def _set(mapping: CommentedMap, path: Path, value: Any) -> None:
    """Set or remove a value below a mapping; mappings that become empty are removed, too."""
    key, *rest = path
    if rest:
        below = mapping.get(key)
        if below is None:
            if value is None:
                return
            below = mapping[key] = flow({})
        if not isinstance(below, CommentedMap):
            raise TownletError(f"`{key}` is not a mapping of keys here", "change it by hand")
        _set(below, rest, value)
        if not below:
            del mapping[key]
    elif value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = None  # otherwise a text gets the style of the one before
        mapping[key] = flow(rounded(value))
        if isinstance(mapping[key], LiteralScalarString):
            mapping.fa.set_block_style()  # lines cannot be kept within { }
