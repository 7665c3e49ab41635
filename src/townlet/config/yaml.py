"""Strict YAML 1.2 into a tree of nodes that remember where they stood.

ruamel.yaml splits the text into events; the tree is built here without recursion, so that hostile files
(deep nesting, alias bombs, huge numbers) end in a readable mistake instead of a long wait or a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml import events as ev
from ruamel.yaml.error import MarkedYAMLError

from townlet.config.scalar import HIDDEN, NULL, Scalar, resolve, shorten
from townlet.errors import ConfigError, Diagnostic, SourceLocation, TownletError, did_you_mean

# Far above any honest file, and low enough that the slowest text of this size is read in about a second.
MAX_BYTES: Final = 128 * 1024
MAX_DEPTH: Final = 32
MAX_NODES: Final = 10_000
MAX_DIAGNOSTICS: Final = 50


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its place: a mapping, a list or a scalar; `key_location` is where its key stands."""

    value: dict[str, Node] | list[Node] | Scalar
    location: SourceLocation
    key_location: SourceLocation | None = None

    def to_python(self) -> Any:
        """The value without places: dicts, tuples and scalars."""
        if isinstance(self.value, dict):
            return {key: node.to_python() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return tuple(node.to_python() for node in self.value)
        return self.value

    def with_value(self, value: dict[str, Node] | list[Node] | Scalar) -> Node:
        """Another value at the same location."""
        return Node(value, self.location, self.key_location)

    def child(self, item: str | int) -> Node | None:
        """The node under a key or a list index, if there is one."""
        if isinstance(self.value, dict) and isinstance(item, str):
            return self.value.get(item)
        if isinstance(self.value, list) and isinstance(item, int) and 0 <= item < len(self.value):
            return self.value[item]
        return None

    def without(self, *path: str | int) -> Node:
        """The same tree less the value at the path."""
        first, *rest = path
        below = self.child(first)
        if below is None:
            return self
        left = below.without(*rest) if rest else None
        if isinstance(self.value, dict):
            pairs = ((key, left if key == first else node) for key, node in self.value.items())
            return Node({key: node for key, node in pairs if node is not None}, self.location, self.key_location)
        entries = self.value if isinstance(self.value, list) else []
        nodes = (left if place == first else node for place, node in enumerate(entries))
        return Node([node for node in nodes if node is not None], self.location, self.key_location)

    def location_of(self, *path: str | int) -> SourceLocation:
        """Where the value at the path stands (its key, if it has one), or its nearest ancestor that exists."""
        node = self
        for item in path:
            below = node.child(item)
            if below is None:
                break
            node = below
        return node.key_location or node.location


def parse(text: str | bytes, source: str) -> Node:
    """The mapping written in this text; raises ConfigError with file, line and column."""
    builder = _Builder(source)
    decoded = _decode(text, source)
    root = builder.run(decoded)
    if root is None or root.value is None:
        raise ConfigError(
            [Diagnostic("there is nothing in it", "write at least one 'key: value'", SourceLocation(source, 1, 1))]
        )
    if not isinstance(root.value, dict):
        raise ConfigError(
            [Diagnostic("the top level is not a mapping", "begin with 'key: value' lines", root.location)]
        )
    return root


def parse_value(text: str, source: str) -> Node:
    """One value from the command line: a scalar, [a list] or {a: mapping}; it has a source but no lines."""
    builder = _Builder(source, lines=False)
    root = builder.run(_decode(text, source, lines=False))
    if root is None or (root.value is None and text.strip() not in NULL - {""}):
        fix = "write null for nothing, '' for an empty text, and quote a text that begins with #"
        raise ConfigError([Diagnostic("there is no value", fix, SourceLocation(source))])
    return root


def read(path: Path) -> Node:
    """The mapping in this file; raises ConfigError, also when there is no such file."""
    where = SourceLocation(str(path))
    try:
        with path.open("rb") as file:
            # One byte more than allowed tells that the file is too large without reading all of it.
            text = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError([Diagnostic("there is no such file", _similar(path), where)]) from None
    except IsADirectoryError:
        raise ConfigError([Diagnostic("this is a directory", "name a YAML file in it", where)]) from None
    except PermissionError:
        raise ConfigError([Diagnostic("the file may not be read", "change its permissions", where)]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([Diagnostic(f"the file cannot be read: {reason}", "check the path", where)]) from None
    return parse(text, str(path))


def _similar(path: Path) -> str:
    try:
        siblings = sorted(p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml"))
    except OSError:
        return f"there is no directory {path.parent} either"
    return did_you_mean(path.name, siblings) if siblings else f"there is no YAML file in {path.parent}"


def _decode(text: str | bytes, source: str, lines: bool = True) -> str:
    """Checked text with '\\n' line ends; too large, not UTF-8 or hidden characters are refused here."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > MAX_BYTES:
        fix = f"split or shorten it to {MAX_BYTES // 1024} KiB"
        raise ConfigError([Diagnostic(f"more than {MAX_BYTES // 1024} KiB of text", fix, SourceLocation(source))])
    try:
        decoded = text if isinstance(text, str) else raw.decode("utf-8")
    except UnicodeDecodeError as error:
        place = _place(raw[: error.start].decode("utf-8"), source, lines)
        fix = "save the file with UTF-8 encoding"
        raise ConfigError([Diagnostic(f"byte 0x{raw[error.start]:02x} is not UTF-8 text", fix, place)]) from None
    decoded = decoded.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    found = [
        Diagnostic(f"hidden character U+{ord(m[0]):04X}", "delete it", _place(decoded[: m.start()], source, lines))
        for m, _ in zip(HIDDEN.finditer(decoded), range(MAX_DIAGNOSTICS), strict=False)
    ]
    if found:
        raise ConfigError(found)
    return decoded


def _place(before: str, source: str, lines: bool) -> SourceLocation:
    before = before.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return (
        SourceLocation(source, before.count("\n") + 1, len(before) - before.rfind("\n"))
        if lines
        else SourceLocation(source)
    )


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not come yet; in a mapping, the key that waits for its value."""

    node: Node
    key: str | None = None
    key_location: SourceLocation | None = None


class _Builder:
    """Turns events into nodes, collecting mistakes, with bounds on depth and number."""

    def __init__(self, source: str, lines: bool = True) -> None:
        self.source = source
        self.lines = lines
        self.diagnostics: list[Diagnostic] = []
        self.open: list[_Open] = []
        self.root: Node | None = None
        self.nodes = 0
        self.documents = 0

    def run(self, text: str) -> Node | None:
        """The root node (None where there is none); raises all mistakes found."""
        for event in self._events(text):
            self._take(event)
            if len(self.diagnostics) >= MAX_DIAGNOSTICS:
                break
        if self.diagnostics:
            raise ConfigError(self.diagnostics)
        return self.root

    def _events(self, text: str) -> Iterator[ev.Event]:
        """ruamel's events; whatever it raises becomes the last mistake."""
        try:
            yield from YAML(typ="safe", pure=True).parse(text)
        except MarkedYAMLError as error:
            what, fix, location = explain(error)
            self._wrong(what, fix, SourceLocation(self.source, 1, 1) if location is None else self._mark(location))
        except Exception as error:  # the parser's own slips on odd input must not reach the user as a traceback
            what = f"this is not valid YAML ({type(error).__name__})"
            self._wrong(what, "look for odd quotes, escapes and directives", SourceLocation(self.source))

    def _mark(self, location: Any) -> SourceLocation:
        return (
            SourceLocation(self.source, location.line + 1, location.column + 1)
            if self.lines
            else SourceLocation(self.source)
        )

    def _wrong(self, what: str, fix: str, where: SourceLocation) -> None:
        self.diagnostics.append(Diagnostic(what, fix, where))

    def _stop(self, what: str, fix: str, where: SourceLocation) -> None:
        """A mistake after which reading on would be unsafe or useless."""
        raise ConfigError([*self.diagnostics, Diagnostic(what, fix, where)])

    def _take(self, event: ev.Event) -> None:
        location = self._mark(event.start_mark)
        if isinstance(event, ev.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self._stop("a second document begins here", "keep one document in a file; remove this '---'", location)
            if event.version not in (None, (1, 2)):
                self._wrong("this is not YAML 1.2", "remove the %YAML line", location)
        elif isinstance(event, ev.NodeEvent):
            self._count(location)
            self._plainness(event, location)
            if isinstance(event, ev.ScalarEvent):
                self._put(Node(self._scalar(event, location), location))
            elif isinstance(event, ev.CollectionStartEvent):
                self._begin(event, location)
            else:  # an alias; its mistake is noted, an empty value keeps the tree in shape
                self._put(Node(None, location))
        elif isinstance(event, ev.CollectionEndEvent):
            self._put(self.open.pop().node)

    def _count(self, location: SourceLocation) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self._stop(f"more than {MAX_NODES} values", "split or shorten it", location)

    def _plainness(self, event: ev.NodeEvent, location: SourceLocation) -> None:
        """Anchors, aliases and tags hide what a file says; none is accepted."""
        if isinstance(event, ev.AliasEvent):
            self._wrong(f"aliases are not accepted (*{shorten(event.anchor)})", "write the value out", location)
        elif event.anchor is not None:
            self._wrong(
                f"anchors are not accepted (&{shorten(event.anchor)})", "remove it and write the value twice", location
            )
        tag = getattr(event, "tag", None)
        if tag is not None:
            shown = shorten(str(tag).replace("tag:yaml.org,2002:", "!!"))
            self._wrong(f"tags are not accepted ({shown})", "remove it; the value alone says what it is", location)

    def _begin(self, event: ev.CollectionStartEvent, location: SourceLocation) -> None:
        if len(self.open) >= MAX_DEPTH:
            self._stop(f"nested deeper than {MAX_DEPTH} levels", "flatten it", location)
        if not self.lines and not event.flow_style:
            self._stop(
                "a list or mapping needs brackets here", "write [a, list] or {a: mapping}, or quote a text", location
            )
        self.open.append(_Open(Node({} if isinstance(event, ev.MappingStartEvent) else [], location)))

    def _put(self, node: Node) -> None:
        """Hand a finished node to the collection around it: as an entry, a key or a value."""
        if not self.open:
            self.root = node
            return
        around = self.open[-1]
        if isinstance(around.node.value, list):
            around.node.value.append(node)
        elif isinstance(around.node.value, dict):
            if around.key_location is None:
                around.key, around.key_location = self._key(node, around.node.value), node.location
                return
            if around.key is not None:
                around.node.value[around.key] = Node(node.value, node.location, around.key_location)
            around.key = around.key_location = None

    def _key(self, node: Node, known: dict[str, Node]) -> str | None:
        """The text of a key; None when it is unusable, so that its value is dropped."""
        key = node.value
        if not isinstance(key, str):
            shown = "this key" if isinstance(key, (dict, list)) else f"key {'null' if key is None else key}"
            fix = "put a word before the ':', or quote it"
            if isinstance(key, int | float):
                fix += "; a decimal has a point and no comma, as in 0.03"
            self._wrong(f"{shown} is not text", fix, node.location)
            return None
        if key in known:
            first = known[key].key_location
            line = f", first in line {first.line}" if first and first.line else ""
            self._wrong(f"key '{shorten(key)}' stands here twice{line}", "keep one of them", node.location)
            return None
        return key

    def _scalar(self, event: ev.ScalarEvent, location: SourceLocation) -> Scalar:
        """The core schema of YAML 1.2 for plain scalars; quoted ones are text."""
        text: str = event.value
        if hidden := HIDDEN.search(text):
            self._wrong(f"hidden character U+{ord(hidden[0]):04X} in a text", "remove the escape", location)
            return text
        if event.style:
            return text
        if text == "<<" and self._expects_key():
            self._wrong("merge keys are not accepted (<<)", "write the keys out", location)
        try:
            return resolve(text, location)
        except TownletError as error:
            self.diagnostics.extend(error.diagnostics)
            return text

    def _expects_key(self) -> bool:
        return bool(self.open) and isinstance(self.open[-1].node.value, dict) and self.open[-1].key_location is None


# (part of ruamel's message, what is wrong, how to mend it, at the place where the broken thing began)
WORDS: Final = (
    ("'\\t'", "a tab stands where only spaces may", "indent with spaces", False),
    ("cannot start any token", "a plain text cannot begin with this character", "put the text in quotes", False),
    ("mapping values are not allowed", "a ':' stands where no key can be",
     "check the indentation, or put a text that contains ': ' in quotes", False),
    ("could not find expected ':'", "this line has no ':' after its key", "write 'key: value'", True),
    ("unexpected end of stream", "a quoted text is never closed", "close it with the same quote", True),
    ("expected <block end>", "this does not fit the lines above it",
     "indent it like its siblings, and quote texts that contain quotes", False),
    ("expected ',' or ']'", "a list in [ ] lacks a comma or its ]", "write [a, b, c]", True),
    ("expected ',' or '}'", "a mapping in { } lacks a comma or its }", "write {a: 1, b: 2}", True),
    ("expected the node content", "a value is missing here", "write the value, or close the bracket", False),
    ("sequence entries", "a '- ' stands where no list can begin", "begin the list on its own line", False),
    ("expected '<document start>'", "something stands after the end of the content", "remove it or indent it", False),
    ("escape", "this escape is unknown in a text in double quotes",
     "write \\\\ for a backslash, or use single quotes", False),
    ("undefined tag handle", "tags are not accepted", "remove it; the value alone says what it is", True),
)  # fmt: skip


def explain(error: MarkedYAMLError) -> tuple[str, str, Any]:
    """What is wrong, how to mend it, and ruamel's location of the place (None if it gave none)."""
    problem = " ".join(str(error.problem or error.context or "").split()).replace("'\\x00'", "the end")
    here, began = error.problem_mark, error.context_mark
    for part, what, fix, at_start in WORDS:
        if part in problem:
            return what, fix, (began or here) if at_start else (here or began)
    return f"this is not valid YAML: {problem[:80]}", "check indentation, quotes and brackets", here or began
