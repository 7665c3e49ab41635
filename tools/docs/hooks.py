"""Hooks of MkDocs: the pages of the site are the Markdown files of the repository, at the same relative paths.

Therefore their relative links work on the site as they do in the repository. Linked files become pages too: source
files with their code, notebooks with their cells. Images are copied.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[2]
LESSONS: Final = "src/townlet/lessons/*/README.md"
CHANGELOG: Final = "CHANGELOG.md"
DOCUMENTS: Final = ("*.md", "docs/*.md", "benchmarks/*.md", LESSONS)
ICON: Final = "src/townlet/live/static/icons/townlet.svg"
IMAGES: Final = (".png", ".svg")
LINK: Final = re.compile(r"(?<=\]\()(?!\w+:)([^)\s#]+)")  # the file of [text](file#heading)
FENCE: Final = re.compile(r"^( *(`{3,})\w*)")
CODE: Final = re.compile(r"`[^`]+`")
LANGUAGES: Final = {".py": "python", ".js": "js", ".yaml": "yaml", ".toml": "toml"}


def on_config(config: MkDocsConfig) -> None:
    """Add the lessons to the navigation, in the order of the course."""
    for section in config.nav or []:
        section.get("Lessons", []).extend(sorted(documents(LESSONS), key=lesson_number))


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the documents and the files that they link to."""
    names = documents(*DOCUMENTS)
    for name in names:
        files.append(repository_file(name, config))
    linked = {target for document in names for target in linked_files(document)}
    for name in sorted({ICON, *linked} - {*names}):
        path = ROOT / name
        if path.suffix in IMAGES:
            files.append(repository_file(name, config))
        else:
            content = notebook_page(path) if path.suffix == ".ipynb" else source_page(path)
            shown = InclusionLevel.INCLUDED if path.suffix == ".ipynb" else InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, f"{name}.md", content=content, inclusion=shown))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links of source files and notebooks to their pages, and translate what GitHub reads differently."""
    if page.file.src_uri == CHANGELOG:
        page.meta["search"] = {"boost": 0.1}  # found last
    folder = posixpath.dirname(page.file.src_uri)

    def page_of(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[0]))
        return f"{link[0]}.md" if files.get_file_from_path(f"{target}.md") else link[0]

    return "\n".join(to_python_markdown(LINK.sub(page_of, markdown)))


def repository_file(name: str, config: MkDocsConfig) -> File:
    """A file of the repository; a lesson has the address `lessons/NAME/`."""
    file = File(name, str(ROOT), config.site_dir, config.use_directory_urls)
    file.dest_uri = file.dest_uri.removeprefix("src/townlet/")
    return file


def documents(*patterns: str) -> list[str]:
    """Markdown files of the repository, as paths relative to its root."""
    return [path.relative_to(ROOT).as_posix() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def lesson_number(readme: str) -> int:
    """The number of a lesson in the course."""
    settings = (ROOT / readme).with_name("lesson.yaml").read_text(encoding="utf-8")
    return int(re.findall(r"^number: (\d+)", settings, re.MULTILINE)[0])


def linked_files(document: str) -> Iterator[str]:
    """The existing files that a document links to, as paths relative to the root."""
    for link in LINK.findall((ROOT / document).read_text(encoding="utf-8")):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(document), link))
        if not target.startswith("..") and (ROOT / target).is_file():
            yield target


def to_python_markdown(markdown: str) -> Iterator[str]:
    r"""The lines for Python-Markdown: lists nest by four spaces, a fence has one word, and code has no `\|`."""
    fence, indentation = "", ""  # of the code block that the line is in, with its indentation
    for line in markdown.splitlines():
        if not fence:
            line = CODE.sub(lambda code: code[0].replace(r"\|", "|"), line)
            indentation = " " * (len(line) - len(line.lstrip(" ")))
            if opening := FENCE.match(line):
                line, fence = opening[1], opening[2]
        elif line.strip() == fence:
            fence = ""
        yield indentation + line


def source_page(path: Path) -> str:
    """A page with the code of a file; it is not searched, so that the documentation is found first."""
    code = path.read_text(encoding="utf-8")
    language, fence = LANGUAGES.get(path.suffix, "text"), "`" * 5
    return f"---\nsearch: {{exclude: true}}\n---\n\n# {path.name}\n\n{fence}{language}\n{code}\n{fence}\n"


def notebook_page(path: Path) -> str:
    """A page with the cells of a notebook."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(path.read_text("utf-8"))["cells"]]
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells)
