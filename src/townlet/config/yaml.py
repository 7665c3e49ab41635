"""Strict YAML 1.2, parsed to a tree of nodes with source locations.

ruamel.yaml splits the text into events. The tree is built here without recursion, so that hostile files (deep nesting,
alias bombs, huge numbers) give a readable error instead of a hang or crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml import events as ev
from ruamel.yaml.error import MarkedYAMLError

from townlet.config.scalar import HIDDEN, NULL, Scalar, resolve, shorten
from townlet.errors import ConfigError, Diagnostic, SourceLocation, TownletError, did_you_mean

# Far above any real file, and low enough that the slowest text of this size parses in about a second.
MAX_BYTES: Final = 128 * 1024
MAX_DEPTH: Final = 32
MAX_NODES: Final = 10_000
MAX_DIAGNOSTICS: Final = 50


@dataclass(frozen=True, slots=True)
class Node:
    """A mapping, list or scalar with its source location, and the location of its key if it is in a mapping."""

    value: dict[str, Node] | list[Node] | Scalar
    location: SourceLocation
    key_location: SourceLocation | None = None

    def to_python(self) -> Any:
        """The value as plain dicts, tuples and scalars."""
        if isinstance(self.value, dict):
            return {key: node.to_python() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return tuple(node.to_python() for node in self.value)
        return self.value

    def with_value(self, value: dict[str, Node] | list[Node] | Scalar) -> Node:
        """A node with another value and the same locations."""
        return Node(value, self.location, self.key_location)

    def child(self, item: str | int) -> Node | None:
        """The node at a key or list index, or None."""
        if isinstance(self.value, dict) and isinstance(item, str):
            return self.value.get(item)
        if isinstance(self.value, list) and isinstance(item, int) and 0 <= item < len(self.value):
            return self.value[item]
        return None

    def without(self, *path: str | int) -> Node:
        """A copy of the tree without the value at the path."""
        first, *rest = path
        child = self.child(first)
        if child is None:
            return self
        changed = child.without(*rest) if rest else None
        if isinstance(self.value, dict):
            pairs = ((key, changed if key == first else node) for key, node in self.value.items())
            return self.with_value({key: node for key, node in pairs if node is not None})
        entries = self.value if isinstance(self.value, list) else []
        nodes = (changed if index == first else node for index, node in enumerate(entries))
        return self.with_value([node for node in nodes if node is not None])

    def at(self, path: Iterable[str | int]) -> Node | None:
        """The node at the path, or None."""
        node: Node | None = self
        for item in path:
            node = node.child(item) if node else None
        return node

    def location_of(self, *path: str | int) -> SourceLocation:
        """The location of the value at the path (of its key, if it has one), or of the nearest existing ancestor."""
        node = self
        for item in path:
            child = node.child(item)
            if child is None:
                break
            node = child
        return node.key_location or node.location


def _error(what: str, fix: str, where: SourceLocation) -> ConfigError:
    return ConfigError([Diagnostic(what, fix, where)])


@lru_cache(maxsize=32)  # a command reads the files of a run several times
def parse(text: str | bytes, source: str) -> Node:
    """Parse a text to a mapping; raises ConfigError with file, line and column."""
    root = _Builder(source).run(_decode(text, source))
    if root is None or root.value is None:
        raise _error("the file is empty", "write at least one 'key: value'", SourceLocation(source, 1, 1))
    if not isinstance(root.value, dict):
        raise _error("the top level is not a mapping", "begin with 'key: value' lines", root.location)
    return root


def parse_value(text: str, source: str) -> Node:
    """Parse a value from the command line: a scalar, [a list] or {a: mapping}. Its location has no line."""
    root = _Builder(source, lines=False).run(_decode(text, source, lines=False))
    if root is None or (root.value is None and text.strip() not in NULL - {""}):
        fix = "write null for no value, '' for an empty string, and quote a string that begins with #"
        raise _error("there is no value", fix, SourceLocation(source))
    return root


def read(path: Path) -> Node:
    """Read and parse a file; raises ConfigError if it is missing or invalid."""
    where = SourceLocation(str(path))
    try:
        with path.open("rb") as file:
            # One byte more than allowed shows that the file is too large, without reading all of it.
            text = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise _error("there is no such file", _similar(path), where) from None
    except IsADirectoryError:
        raise _error("this is a folder", "name a YAML file in it", where) from None
    except PermissionError:
        raise _error("no permission to read the file", "change its permissions", where) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _error(f"the file cannot be read: {reason}", "check the path", where) from None
    return parse(text, str(path))


def _similar(path: Path) -> str:
    try:
        siblings = sorted(p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml"))
    except OSError:
        return f"there is no folder {path.parent} either"
    return did_you_mean(path.name, siblings) if siblings else f"there is no YAML file in {path.parent}"


def _decode(text: str | bytes, source: str, lines: bool = True) -> str:
    """The text with '\\n' line ends; raises ConfigError if it is too large, not UTF-8 or has hidden characters."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > MAX_BYTES:
        fix = f"split or shorten it to {MAX_BYTES // 1024} KiB"
        raise _error(f"more than {MAX_BYTES // 1024} KiB of text", fix, SourceLocation(source))
    try:
        decoded = text if isinstance(text, str) else raw.decode("utf-8")
    except UnicodeDecodeError as error:
        where = _location_after(raw[: error.start].decode("utf-8"), source, lines)
        fix = "save the file with UTF-8 encoding"
        raise _error(f"byte 0x{raw[error.start]:02x} is not UTF-8 text", fix, where) from None
    decoded = decoded.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    hidden = [
        Diagnostic(
            f"hidden character U+{ord(m[0]):04X}", "delete it", _location_after(decoded[: m.start()], source, lines)
        )
        for m in islice(HIDDEN.finditer(decoded), MAX_DIAGNOSTICS)
    ]
    if hidden:
        raise ConfigError(hidden)
    return decoded


def _location_after(before: str, source: str, lines: bool) -> SourceLocation:
    before = before.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if not lines:
        return SourceLocation(source)
    return SourceLocation(source, before.count("\n") + 1, len(before) - before.rfind("\n"))


@dataclass(slots=True)
class _OpenCollection:
    """A mapping or list that is not closed yet; in a mapping, the key whose value comes next."""

    node: Node
    key: str | None = None
    key_location: SourceLocation | None = None


class _Builder:
    """Builds a tree of nodes from events, with bounds on depth and number of nodes, and collects diagnostics."""

    def __init__(self, source: str, lines: bool = True) -> None:
        self.source = source
        self.lines = lines  # False for a value on the command line: its location has no line
        self.diagnostics: list[Diagnostic] = []
        self.open: list[_OpenCollection] = []
        self.root: Node | None = None
        self.nodes = 0
        self.documents = 0

    def run(self, text: str) -> Node | None:
        """The root node, or None; raises ConfigError with all diagnostics."""
        for event in self._events(text):
            self._handle(event)
            if len(self.diagnostics) >= MAX_DIAGNOSTICS:
                break
        if self.diagnostics:
            raise ConfigError(self.diagnostics)
        return self.root

    def _events(self, text: str) -> Iterator[ev.Event]:
        """ruamel's events; its exceptions become the last diagnostic."""
        try:
            yield from YAML(typ="safe", pure=True).parse(text)
        except MarkedYAMLError as error:
            what, fix, mark = explain(error)
            self._report(what, fix, SourceLocation(self.source, 1, 1) if mark is None else self._locate(mark))
        except Exception as error:  # bugs of the parser on odd input must not show as a traceback
            what = f"this is not valid YAML ({type(error).__name__})"
            self._report(what, "look for odd quotes, escapes and directives", SourceLocation(self.source))

    def _locate(self, mark: Any) -> SourceLocation:
        return SourceLocation(self.source, *((mark.line + 1, mark.column + 1) if self.lines else ()))

    def _report(self, what: str, fix: str, where: SourceLocation) -> None:
        self.diagnostics.append(Diagnostic(what, fix, where))

    def _stop(self, what: str, fix: str, where: SourceLocation) -> None:
        """Raise all diagnostics with one more, after which it would be unsafe or useless to continue parsing."""
        raise ConfigError([*self.diagnostics, Diagnostic(what, fix, where)])

    def _handle(self, event: ev.Event) -> None:
        location = self._locate(event.start_mark)
        if isinstance(event, ev.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self._stop("a second document begins here", "keep one document in a file; remove this '---'", location)
            if event.version not in (None, (1, 2)):
                self._report("this is not YAML 1.2", "remove the %YAML line", location)
        elif isinstance(event, ev.NodeEvent):
            self.nodes += 1
            if self.nodes > MAX_NODES:
                self._stop(f"more than {MAX_NODES} values", "split or shorten it", location)
            self._reject_indirection(event, location)
            if isinstance(event, ev.ScalarEvent):
                self._put(Node(self._scalar(event, location), location))
            elif isinstance(event, ev.CollectionStartEvent):
                if len(self.open) >= MAX_DEPTH:
                    self._stop(f"nested deeper than {MAX_DEPTH} levels", "flatten it", location)
                if not self.lines and not event.flow_style:
                    fix = "write [a, list] or {a: mapping}, or quote the string"
                    self._stop("a list or mapping needs brackets here", fix, location)
                empty: dict[str, Node] | list[Node] = {} if isinstance(event, ev.MappingStartEvent) else []
                self.open.append(_OpenCollection(Node(empty, location)))
            else:  # an alias, reported already; a null keeps the tree consistent
                self._put(Node(None, location))
        elif isinstance(event, ev.CollectionEndEvent):
            self._put(self.open.pop().node)

    def _reject_indirection(self, event: ev.NodeEvent, location: SourceLocation) -> None:
        """Reject anchors, aliases and tags, which hide what a file contains."""
        if isinstance(event, ev.AliasEvent):
            self._report(f"aliases are not accepted (*{shorten(event.anchor)})", "write the value out", location)
        elif event.anchor is not None:
            self._report(
                f"anchors are not accepted (&{shorten(event.anchor)})", "remove it and write the value twice", location
            )
        if (tag := getattr(event, "tag", None)) is not None:
            shown = shorten(str(tag).replace("tag:yaml.org,2002:", "!!"))
            self._report(f"tags are not accepted ({shown})", "remove it; the type follows from the value", location)

    def _put(self, node: Node) -> None:
        """Add a finished node to its parent, as an entry, a key or a value."""
        if not self.open:
            self.root = node
            return
        parent = self.open[-1]
        if isinstance(parent.node.value, list):
            parent.node.value.append(node)
        elif isinstance(parent.node.value, dict):
            if parent.key_location is None:
                parent.key, parent.key_location = self._key(node, parent.node.value), node.location
                return
            if parent.key is not None:
                parent.node.value[parent.key] = Node(node.value, node.location, parent.key_location)
            parent.key = parent.key_location = None

    def _key(self, node: Node, known: dict[str, Node]) -> str | None:
        """The text of a key; None, after reporting it, if it is not usable."""
        key = node.value
        if not isinstance(key, str):
            shown = "this key" if isinstance(key, (dict, list)) else f"key {'null' if key is None else key}"
            fix = "put a word before the ':', or quote it"
            if isinstance(key, int | float):
                fix += "; write decimals with a point, as in 0.03"
            self._report(f"{shown} is not a string", fix, node.location)
            return None
        if key in known:
            first = known[key].key_location
            line = f", first in line {first.line}" if first and first.line else ""
            self._report(f"key '{shorten(key)}' is repeated{line}", "keep one of them", node.location)
            return None
        return key

    def _scalar(self, event: ev.ScalarEvent, location: SourceLocation) -> Scalar:
        """Resolve a plain scalar by the core schema of YAML 1.2; quoted ones are strings."""
        text: str = event.value
        if hidden := HIDDEN.search(text):
            self._report(f"hidden character U+{ord(hidden[0]):04X} in a string", "remove the escape", location)
            return text
        if event.style:
            return text
        parent = self.open[-1] if self.open else None
        if text == "<<" and parent and isinstance(parent.node.value, dict) and parent.key_location is None:
            self._report("merge keys are not accepted (<<)", "write the keys out", location)
        try:
            return resolve(text, location)
        except TownletError as error:
            self.diagnostics.extend(error.diagnostics)
            return text


# (part of ruamel's message, problem, fix, whether to point at the start of the broken construct)
EXPLANATIONS: Final = (
    ("'\\t'", "a tab where only spaces are allowed", "indent with spaces", False),
    ("cannot start any token", "an unquoted string cannot begin with this character", "quote the string", False),
    ("mapping values are not allowed", "a ':' where no key is allowed",
     "check the indentation, or quote a string that contains ': '", False),
    ("could not find expected ':'", "this line has no ':' after its key", "write 'key: value'", True),
    ("unexpected end of stream", "a quoted string is never closed", "close it with the same quote", True),
    ("expected <block end>", "this does not fit the lines above it",
     "indent it like its siblings, and quote strings that contain quotes", False),
    ("expected ',' or ']'", "a list in [ ] lacks a comma or its ]", "write [a, b, c]", True),
    ("expected ',' or '}'", "a mapping in { } lacks a comma or its }", "write {a: 1, b: 2}", True),
    ("expected the node content", "a value is missing here", "write the value, or close the bracket", False),
    ("sequence entries", "a '- ' where no list can begin", "begin the list on its own line", False),
    ("expected '<document start>'", "text after the end of the content", "remove it or indent it", False),
    ("escape", "this escape is unknown in a double-quoted string",
     "write \\\\ for a backslash, or use single quotes", False),
    ("undefined tag handle", "tags are not accepted", "remove it; the type follows from the value", True),
)  # fmt: skip


def explain(error: MarkedYAMLError) -> tuple[str, str, Any]:
    """What is wrong, how to fix it, and ruamel's mark of the position (or None)."""
    problem = " ".join(str(error.problem or error.context or "").split()).replace("'\\x00'", "the end")
    problem_mark, start_mark = error.problem_mark, error.context_mark
    for part, what, fix, at_start in EXPLANATIONS:
        if part in problem:
            return what, fix, (start_mark or problem_mark) if at_start else (problem_mark or start_mark)
    mark = problem_mark or start_mark
    return f"this is not valid YAML: {problem[:80]}", "check indentation, quotes and brackets", mark
