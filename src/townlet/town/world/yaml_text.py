"""YAML texts for people: emitted with a line per key and per entry, and parsed so that comments and layout are kept."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import LiteralScalarString

from townlet.config.yaml import parse
from townlet.errors import TownletError

WIDTH: Final = 100  # columns; longer lines are wrapped
DIGITS: Final = 6  # decimals of a number
SOURCE: Final = "edited.yaml"  # file name in messages about a text
NAME_KEYS: Final = ("name", "source", "target")


def name_of(entry: Mapping[str, Any]) -> str:
    """The name of an entry of a list of named things; that of a link is source->target."""
    return str(entry.get("name") or f"{entry.get('source')}->{entry.get('target')}")


def rounded(value: Any) -> Any:
    """The value with rounded numbers; whole ones as integers."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) > 1 else round(value, DIGITS)
    if isinstance(value, Mapping):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list | tuple) else value


def _yaml() -> YAML:
    yaml = YAML(typ="rt")
    yaml.width = WIDTH
    yaml.preserve_quotes = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def load_document(text: str) -> CommentedMap:
    """Parse a text for a round trip; raises a TownletError if it is not strict YAML, or cannot be kept as it is."""
    parse(text, SOURCE)  # refuses aliases, tags and duplicate keys
    try:
        document = _yaml().load(text)
    except (YAMLError, ValueError, ArithmeticError) as error:
        raise _unsupported(error) from None
    if not isinstance(document, CommentedMap):
        raise TownletError("this text is not a mapping of keys", "begin with 'key: value' lines")
    return document


def dump(document: CommentedMap) -> str:
    """The text of a document."""
    out = StringIO()
    try:
        _yaml().dump(document, out)
    except (YAMLError, ValueError, ArithmeticError) as error:
        raise _unsupported(error) from None
    return out.getvalue()


def _unsupported(error: Exception) -> TownletError:
    what = f"this text cannot be changed here: {' '.join(str(error).split())[:80]}"
    return TownletError(what, "change it by hand")


def new_document(content: Mapping[str, Any]) -> CommentedMap:
    """A document with a line per key, and a line per entry of lists of named things."""
    document = CommentedMap()
    for key, value in rounded(content).items():
        named = isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value)
        document[key] = CommentedSeq(map(new_entry, value)) if named else flow(value)
    return document


def new_entry(value: Any) -> Any:
    """An entry of a list of named things: on one line if it is short, else with a line per key."""
    if not isinstance(value, Mapping) or len(str(value)) <= WIDTH - 20:
        return flow(value)
    return CommentedMap((key, flow(part)) for key, part in value.items())


def flow(value: Any) -> Any:
    """Plain data for the emitter, on one line; a text of several lines, such as a drawing, stays in its lines."""
    if isinstance(value, Mapping):
        mapping = CommentedMap((key, flow(part)) for key, part in value.items())
        mapping.fa.set_flow_style()
        return mapping
    if isinstance(value, list | tuple):
        entries = CommentedSeq(map(flow, value))
        entries.fa.set_flow_style()
        return entries
    return LiteralScalarString(value) if isinstance(value, str) and "\n" in value else value
