"""Checks that no linter offers: rejected words, duplicate class names and import cycles. Used by `make check`.

`tools/words.toml` lists the rejected words with their replacements.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
WORDS: Final = ROOT / "tools" / "words.toml"
TEXT: Final = (".py", ".md", ".js", ".css", ".html", ".yaml", ".toml")
VENDORED: Final = "/vendor/"


def text_files() -> list[Path]:
    """Text files of the repository that Git does not ignore, relative to its root, without vendored ones."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    paths = [Path(name) for name in names if name.endswith(TEXT) and VENDORED not in name]
    return [path for path in paths if (ROOT / path).is_file() and ROOT / path != WORDS]


def denied_words(texts: Mapping[str, str], rules: Mapping[str, Any]) -> Iterator[str]:
    """A line for each occurrence of a denied word, unless the surrounding text is allowed in that file."""
    patterns = {re.compile(rf"\b(?:{word})\b", re.IGNORECASE): instead for word, instead in rules["denied"].items()}
    any_denied = re.compile(rf"\b(?:{'|'.join(rules['denied'])})\b", re.IGNORECASE)
    for name, text in texts.items():
        if not any_denied.search(text):  # most files
            continue
        allowed: list[str] = rules["allowed"].get(name, [])
        for number, line in enumerate(text.splitlines(), 1):
            for quotation in allowed:
                line = line.replace(quotation, "")
            for pattern, instead in patterns.items():
                for found in pattern.finditer(line):
                    yield f"{name}:{number}: “{found[0]}”: write instead: {instead}"


def duplicate_classes(sources: Mapping[str, str]) -> Iterator[str]:
    """A line for each class name that is defined more than once; a protocol and its implementation may share one."""
    classes: dict[str, list[str]] = defaultdict(list)
    protocols: dict[str, list[str]] = defaultdict(list)
    for name, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                is_protocol = any("Protocol" in ast.unparse(parent) for parent in node.bases)
                (protocols if is_protocol else classes)[node.name].append(f"{name}:{node.lineno}")
    for name in sorted({*classes, *protocols}):
        if len(classes[name]) > 1 or len(protocols[name]) > 1:
            places = [*classes[name], *(f"{place} (protocol)" for place in protocols[name])]
            yield f"class {name} is defined {len(places)} times: {', '.join(places)}"


def imported_modules(source: str, modules: Container[str]) -> Iterator[str]:
    """The modules that a source file imports, including imports for type checking and inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not followed"
            for alias in node.names:  # a submodule, or a name in the module
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in modules else node.module or ""


def import_cycle(sources: Mapping[str, str]) -> list[str]:
    """The modules of one import cycle; [] if there is none."""
    graph = {name: {*imported_modules(text, sources)} & sources.keys() - {name} for name, text in sources.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def module_name(path: Path) -> str:
    """The dotted name of a source file below `src`."""
    parts = path.relative_to("src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def problems(paths: Iterable[Path]) -> Iterator[str]:
    """A line for each violation in the given files."""
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
    yield from denied_words(
        {str(path): text for path, text in texts.items()}, tomllib.loads(WORDS.read_text(encoding="utf-8"))
    )
    sources = {path: text for path, text in texts.items() if path.suffix == ".py" and path.parts[0] == "src"}
    yield from duplicate_classes({str(path): text for path, text in sources.items()})
    if cycle := import_cycle({module_name(path): text for path, text in sources.items()}):
        yield f"import cycle: {' → '.join(cycle)}"


if __name__ == "__main__":
    found = list(problems(text_files()))
    print(*found, sep="\n")
    sys.exit(f"{len(found)} problems; words and exceptions are listed in {WORDS.relative_to(ROOT)}" if found else 0)
