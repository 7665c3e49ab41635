"""YAML texts of worlds for people: a short text of any world, and edits that keep comments and layout.

An edited text must have been validated before: aliases, tags and duplicate keys do not reach the code below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from townlet.config.merge import entry_name
from townlet.config.yaml import parse
from townlet.errors import ConfigError, TownletError, did_you_mean
from townlet.town.world.load import FOLDER, NAMED_LISTS, from_text, inherit, load, read_world, shipped
from townlet.town.world.tables import World

WIDTH: Final = 100  # columns; longer lines are wrapped
DIGITS: Final = 6  # decimals of a number that is set
SOURCE: Final = "edited.yaml"
Path = Sequence[str]  # keys; an entry of a list of named things is a key, as in affordances, Bed, price


# Short texts


def short_text(world: World) -> str:
    """A text that compiles to the same world: if possible its differences from a shipped one, without defaults."""
    texts = [text for name in shipped() if (text := _difference(world, load(name))) is not None]
    equal = [text for text in sorted(texts, key=len) if _is_equal(text, world)]
    return equal[0] if equal else _dump(_document(_without_defaults(world)))


def _is_equal(text: str, world: World) -> bool:
    try:
        return from_text(text).content_hash == world.content_hash
    except ConfigError:
        return False


def _without_defaults(world: World) -> dict[str, Any]:
    return world.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _difference(world: World, parent: World) -> str | None:
    """What the world changes, as a text that extends the parent; None if a key would have to return to its default."""
    own, inherited = _without_defaults(world), _without_defaults(parent)
    changes: dict[str, Any] = {"extends": parent.name}
    if "description" in own:
        changes["description"] = own["description"]
    removed: list[str] = []
    for key, value in own.items():
        before = inherited.get(key)
        if key == "description" or value == before:
            continue
        if key in NAMED_LISTS and before is not None:
            changed, gone = _changed_entries(value, before)
            removed += gone
            if changed:
                changes[key] = changed
        elif isinstance(value, dict) and isinstance(before, dict) and before.keys() <= value.keys():
            changes[key] = {name: part for name, part in value.items() if part != before.get(name)}
        else:
            changes[key] = value
    if inherited.keys() - own.keys() - {"description"}:
        return None
    if removed:
        changes["remove"] = removed
    return _dump(_document(changes))


def _changed_entries(entries: list[Any], before: list[Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """New and changed entries, the latter with their name and their changed keys, and the names of those removed."""
    inherited = {_name_of(entry): entry for entry in before}
    changed = []
    for entry in entries:
        known = inherited.get(_name_of(entry))
        if known is None:
            changed.append(entry)
        elif entry != known:
            parts = {key: _changed_value(value, known.get(key)) for key, value in entry.items()}
            keep = {key: parts[key] for key, value in entry.items() if value != known.get(key)}
            changed.append({**{key: entry[key] for key in _NAME_KEYS if key in entry}, **keep})
    names = {_name_of(entry) for entry in entries}
    return changed, [name for name in inherited if name not in names]


_NAME_KEYS: Final = ("name", "source", "target")


def _changed_value(value: Any, before: Any) -> Any:
    """The changed keys of a mapping, which merge key by key; any other value as it is."""
    if isinstance(value, dict) and isinstance(before, dict):
        return {name: part for name, part in value.items() if part != before.get(name)}
    return value


def _name_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("name") or f"{entry.get('source')}->{entry.get('target')}")


# Edits


def set_value(text: str, path: Path, value: Any) -> str:
    """The text with a value at the path, or without it if the value is None; numbers are rounded."""
    document = _load(text)
    section = path[0]
    if section in NAMED_LISTS and len(path) > 2:
        entry = _own_entry(document, section, path[1])
        if entry is None:
            _require_inherited(text, section, path[1])
            entry = _append(document, section, _link_ends(path[1]) or {"name": path[1]})
        _set(entry, path[2:], value)
        if set(entry) <= set(_NAME_KEYS) and path[1] in _inherited_names(text, section):
            _delete_entry(document, section, path[1])
    else:
        _set(document, path, value)
    return _dump(document)


def add_entry(text: str, section: str, entry: Mapping[str, Any]) -> str:
    """The text with another meter, affordance or link."""
    document = _load(text)
    name = _name_of(entry)
    known = {*_inherited_names(text, section), *_own_names(document, section)}
    removed = _removed_names(document)
    if name in known - removed:
        raise TownletError(f"there is already '{name}' in {section}", "choose another name")
    if name in removed:  # the inherited one returns, with the values of the entry
        document["remove"].remove(name)
        if not document["remove"]:
            del document["remove"]
    _append(document, section, entry)
    return _dump(document)


def remove_entry(text: str, section: str, name: str) -> str:
    """The text without a meter, affordance or link; an inherited one is listed under `remove`."""
    document = _load(text)
    own, inherited = name in _own_names(document, section), name in _inherited_names(text, section)
    if not own and not inherited:
        raise TownletError(f"there is no '{name}' in {section}", did_you_mean(name, _own_names(document, section)))
    if own:
        _delete_entry(document, section, name)
    if inherited:
        removed = document.setdefault("remove", _flow([]))
        removed.append(name)
    return _dump(document)


def rename_entry(text: str, section: str, name: str, new: str) -> str:
    """The text with another name for one of its own affordances or meters; inherited ones cannot be renamed."""
    document = _load(text)
    entry = _own_entry(document, section, name)
    if entry is None or name in _inherited_names(text, section):
        raise TownletError(f"'{name}' is inherited and cannot be renamed", "remove it, and add one with another name")
    if new in {*_inherited_names(text, section), *_own_names(document, section)}:
        raise TownletError(f"there is already '{new}' in {section}", "choose another name")
    entry["name"] = new
    return _dump(document)


def _require_inherited(text: str, section: str, name: str) -> None:
    known = _inherited_names(text, section)
    if name not in known:
        raise TownletError(f"there is no '{name}' in {section}", did_you_mean(name, known))


def _inherited_names(text: str, section: str) -> list[str]:
    """Names of the entries that the text inherits from the shipped world it extends."""
    node = parse(text, SOURCE)
    parent = node.child("extends")
    if parent is None or parent.value not in shipped():
        return []
    path = FOLDER / f"{parent.value}.yaml"
    entries = inherit(read_world(path), path, []).child(section)
    found = entries.value if entries is not None and isinstance(entries.value, list) else []
    return [name for entry in found if (name := entry_name(entry)) is not None]


def _removed_names(document: CommentedMap) -> set[str]:
    return {str(name) for name in document.get("remove") or ()}


def _own_names(document: CommentedMap, section: str) -> list[str]:
    return [_own_name(entry) for entry in document.get(section) or ()]


def _own_name(entry: Any) -> str:
    return _name_of(entry) if isinstance(entry, Mapping) else str(entry)


def _own_entry(document: CommentedMap, section: str, name: str) -> CommentedMap | None:
    """The text's own entry; one that is only a name becomes a mapping."""
    entries = document.get(section) or []
    for index, entry in enumerate(entries):
        if _own_name(entry) == name:
            if not isinstance(entry, CommentedMap):
                entries[index] = _flow({"name": name})
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
    added: CommentedMap = _entry(_rounded(entry))
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
        if not isinstance(below, CommentedMap):
            if value is None:
                return
            below = mapping[key] = _flow({})
        _set(below, rest, value)
        if not below:
            del mapping[key]
    elif value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = _flow(_rounded(value))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) > 1 else round(value, DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list | tuple) else value


# YAML


def _yaml() -> YAML:
    yaml = YAML(typ="rt")
    yaml.width = WIDTH
    yaml.preserve_quotes = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def _load(text: str) -> CommentedMap:
    parse(text, SOURCE)  # refuses what a round trip must not see
    document: CommentedMap = _yaml().load(text)
    return document


def _dump(document: CommentedMap) -> str:
    out = StringIO()
    _yaml().dump(document, out)
    return out.getvalue()


def _document(content: Mapping[str, Any]) -> CommentedMap:
    """A document with a line per key, and a line per entry of lists of named things."""
    document = CommentedMap()
    for key, value in _rounded(content).items():
        named = isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value)
        document[key] = CommentedSeq(map(_entry, value)) if named else _flow(value)
    return document


def _entry(value: Any) -> Any:
    """An entry of a list of named things: on one line if it is short, else with a line per key."""
    if not isinstance(value, Mapping) or len(str(value)) <= WIDTH - 20:
        return _flow(value)
    return CommentedMap((key, _flow(part)) for key, part in value.items())


def _flow(value: Any) -> Any:
    """Plain data for the emitter, on one line."""
    if isinstance(value, Mapping):
        mapping = CommentedMap((key, _flow(part)) for key, part in value.items())
        mapping.fa.set_flow_style()
        return mapping
    if isinstance(value, list | tuple):
        entries = CommentedSeq(map(_flow, value))
        entries.fa.set_flow_style()
        return entries
    return value
