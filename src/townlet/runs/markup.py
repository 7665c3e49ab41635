"""Sections of a report as Markdown and as one HTML file. Everything that comes from data is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final
from urllib.parse import quote

from townlet.runs.plots import Plot

# Whatever the names and texts of a run contain, the page loads and executes nothing.
CONTENT_SECURITY_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #5a6472; --paper: #fff; --card: #f3f5f8; --line: #d8dee6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --soft: #9ba6b3; --paper: #15181c; --card: #20252b; --line: #363e48; } }
body { color: var(--ink); background: var(--paper); font: 16px/1.55 system-ui, sans-serif; max-width: 60rem;
       margin: 2.5rem auto 5rem; padding: 0 1.2rem; overflow-wrap: break-word; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .2rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-top: 1.2rem; border-top: 1px solid var(--line); }
p { max-width: 46rem; } .about { color: var(--soft); margin: 0 0 1.4rem; font-size: .9rem; }
.cards { display: grid; grid-template-columns: repeat(4, 1fr); gap: .6rem; margin: 1rem 0; }
@media (max-width: 40rem) { .cards { grid-template-columns: 1fr 1fr; } }
.cards div { background: var(--card); border-radius: .5rem; padding: .55rem .8rem; }
.cards dt { color: var(--soft); font-size: .85rem; } .cards dd { margin: 0; font-size: 1.25rem; font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .93rem; }
th, td { padding: .25rem 1.2rem .25rem 0; text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 500; white-space: nowrap; } td { overflow-wrap: anywhere; }
.number, .word { white-space: nowrap; } .number { text-align: right; } tr { border-bottom: 1px solid var(--line); }
figure { margin: 1rem 0; overflow-x: auto; } svg { max-width: 100%; height: auto; }
pre { overflow-x: auto; background: var(--card); border-radius: .5rem; padding: .7rem .9rem; font-size: .85rem; }
"""
WORD: Final = re.compile(r"\S{0,40}")  # also a sparkline
NUMBER: Final = re.compile(r"[-−]?[\d,.]+(e[-+]?\d+)?( ?%)?")


@dataclass(frozen=True)
class Section:
    """A heading and its content; a section without a title opens the page.

    `cards` are pairs of name and value and come first. `code` is a command to copy, `links` are pairs of text and file,
    `verbatim` is a long text, collapsed in HTML. A table without a header has row names in its first column.
    """

    title: str
    paragraphs: Sequence[str] = ()
    cards: Sequence[tuple[str, str]] = ()
    code: str = ""
    plots: Sequence[Plot] = field(default=())
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    links: Sequence[tuple[str, str]] = ()
    verbatim: str = ""


def markdown(title: str, about: str, sections: Iterable[Section], folder: str) -> str:
    """The report as Markdown; plots are files in `folder`."""
    lines = [f"# {escape_markdown(title)}", "", escape_markdown(about), ""]
    for section in sections:
        lines += [f"## {escape_markdown(section.title)}", ""] if section.title else []
        if section.cards:
            names, values = zip(*section.cards, strict=True)
            lines += [table_row(names), table_rule(len(names)), table_row(values), ""]
        for paragraph in section.paragraphs:
            lines += [escape_markdown(paragraph), ""]
        if section.code:
            lines += [*code_block(section.code, "sh"), ""]
        for plot in section.plots:
            lines += [f"![{escape_markdown(plot.about)}]({folder}/{plot.name}.svg)", ""]
        if section.rows:
            header = section.header or ("",) * len(section.rows[0])
            lines += [table_row(header), table_rule(len(header)), *map(table_row, section.rows), ""]
        lines += [f"- [{escape_markdown(text)}]({quote(path)})" for text, path in section.links]
        lines += [""] if section.links else []
        if section.verbatim:
            lines += [*code_block(section.verbatim, "yaml"), ""]
    return "\n".join(lines)


def html(title: str, about: str, sections: Iterable[Section]) -> str:
    """The report as one self-contained HTML file."""
    body = [f'<h1>{escape(title)}</h1><p class="about">{escape(about)}</p>']
    for section in sections:
        body.append("<section>" + (f"<h2>{escape(section.title)}</h2>" if section.title else ""))
        cards = (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in section.cards)
        body += [f'<dl class="cards">{"".join(cards)}</dl>'] if section.cards else []
        body += [f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs]
        body += [f"<pre>{escape(section.code)}</pre>"] if section.code else []
        body += [f'<figure role="img" aria-label="{escape(plot.about)}">{plot.svg}</figure>' for plot in section.plots]
        body += [_table(section)] if section.rows else []
        links = (f'<li><a href="{escape(quote(path))}">{escape(text)}</a></li>' for text, path in section.links)
        body += [f"<ul>{''.join(links)}</ul>"] if section.links else []
        if section.verbatim:
            body.append(f"<details><summary>show</summary><pre>{escape(section.verbatim)}</pre></details>")
        body.append("</section>")
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _table(section: Section) -> str:
    """An HTML table with numeric columns aligned right, and columns of single words not wrapped."""

    def attribute(column: Sequence[str]) -> str:
        if section.header and any(column) and all(NUMBER.fullmatch(cell) for cell in column if cell):
            return ' class="number"'
        return ' class="word"' if all(WORD.fullmatch(cell) for cell in column) else ""

    attributes = [attribute(column) for column in zip(*section.rows, strict=True)]

    def html_row(cells: Sequence[str], tags: Sequence[str]) -> str:
        row = zip(cells, tags, attributes, strict=True)
        return "<tr>" + "".join(f"<{tag}{attribute}>{escape(cell)}</{tag}>" for cell, tag, attribute in row) + "</tr>"

    width = len(section.rows[0])
    head = html_row(section.header, ["th"] * width) if section.header else ""
    tags = ["td"] * width if section.header else ["th", *["td"] * (width - 1)]
    return f'<div class="wide"><table>{head}{"".join(html_row(cells, tags) for cells in section.rows)}</table></div>'


def code_block(text: str, language: str) -> list[str]:
    """A fenced code block whose fence is longer than any in the text."""
    fence = "`" * max(3, *(len(found) + 1 for found in re.findall("`+", text)), 0)
    return [f"{fence}{language}", text.rstrip("\n"), fence]


def table_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(escape_markdown, cells)) + " |"


def table_rule(columns: int) -> str:
    return "|" + " --- |" * columns


def escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", " ".join(text.split()))
