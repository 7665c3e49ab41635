"""What ruamel.yaml says about broken YAML, in words that help to mend it."""

from __future__ import annotations

from typing import Any, Final

from ruamel.yaml.error import MarkedYAMLError

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
    """What is wrong, how to mend it, and ruamel's mark of the place (None if it gave none)."""
    problem = " ".join(str(error.problem or error.context or "").split()).replace("'\\x00'", "the end")
    here, began = error.problem_mark, error.context_mark
    for part, what, fix, at_start in WORDS:
        if part in problem:
            return what, fix, (began or here) if at_start else (here or began)
    return f"this is not valid YAML: {problem[:80]}", "check indentation, quotes and brackets", here or began
