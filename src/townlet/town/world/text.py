"""Short texts of worlds: their descriptions, and their differences from a shipped world."""

from __future__ import annotations

from typing import Any

from townlet.errors import ConfigError
from townlet.town.world.load import NAMED_LISTS, from_text, load, shipped
from townlet.town.world.tables import World
from townlet.town.world.yaml_text import NAME_KEYS, dump, name_of, new_document


def describe(world: World) -> str:
    """The description of a world, or a sentence about its map, places and time if it has none."""
    spec, places = world.spec, len(world.affordances)
    if spec.description:
        return spec.description
    town = f"{'×'.join(map(str, world.size))} town" if world.size else "Town without a map"
    moving = ", which are elsewhere in every episode" if world.tables.shuffled else ""
    if spec.clock.temporal:
        time = "places have opening hours, and using one takes several steps"
    else:
        time = "each use of a place takes one step"
    return f"{town} with {places} place{'' if places == 1 else 's'}{moving}; {time}."


def short_text(world: World) -> str:
    """A text that compiles to the same world: if possible its differences from a shipped one, without defaults."""
    texts = [text for name in shipped() if (text := _difference(world, load(name))) is not None]
    equal = [text for text in sorted(texts, key=len) if _is_equal(text, world)]
    return equal[0] if equal else dump(new_document(_without_defaults(world)))


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
    if "description" in own and own["description"] != inherited.get("description"):
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
    return dump(new_document(changes))


def _changed_entries(entries: list[Any], before: list[Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """New and changed entries, the latter with their name and their changed keys, and the names of those removed."""
    inherited = {name_of(entry): entry for entry in before}
    changed = []
    for entry in entries:
        known = inherited.get(name_of(entry))
        if known is None:
            changed.append(entry)
        elif entry != known:
            parts = {key: _changed_value(value, known.get(key)) for key, value in entry.items()}
            keep = {key: parts[key] for key, value in entry.items() if value != known.get(key)}
            changed.append({**{key: entry[key] for key in NAME_KEYS if key in entry}, **keep})
    names = {name_of(entry) for entry in entries}
    return changed, [name for name in inherited if name not in names]


def _changed_value(value: Any, before: Any) -> Any:
    """The changed keys of a mapping, which merge key by key; any other value as it is."""
    if isinstance(value, dict) and isinstance(before, dict):
        return {name: part for name, part in value.items() if part != before.get(name)}
    return value
