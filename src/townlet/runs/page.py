"""Sections of a report as Markdown and as one HTML file. Everything that comes from data is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from townlet.runs.plots import Plot

# Nothing is loaded and nothing runs, whatever a name or a text of a run contains.
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
STYLE: Final = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --line: #8886; }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --paper: #16181b; } }
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif; max-width: 60rem;
       margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; } th, td { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top; }
tr { border-bottom: 1px solid var(--line); } figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
pre { overflow-x: auto; border: 1px solid var(--line); padding: .6rem; font-size: .85rem; }
"""


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it; `verbatim` is a long text that one may want to look up."""

    title: str
    paragraphs: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    plots: Sequence[Plot] = field(default=())
    verbatim: str = ""


def markdown(title: str, sections: Iterable[Section], folder: str) -> str:
    """The report as Markdown; plots are files in `folder`."""
    lines = [f"# {_plain(title)}", ""]
    for section in sections:
        lines += [f"## {_plain(section.title)}", ""]
        for paragraph in section.paragraphs:
            lines += [_plain(paragraph), ""]
        if section.rows:
            header = section.header or ("",) * len(section.rows[0])
            lines += [_row(header), _row(["---"] * len(header), plain=False), *map(_row, section.rows), ""]
        for plot in section.plots:
            lines += [f"![{_plain(plot.about)}]({folder}/{plot.name}.svg)", ""]
        if section.verbatim:
            fence = "`" * (max((len(run) for run in re.findall("`+", section.verbatim)), default=2) + 1)
            fence = max(fence, "```", key=len)
            lines += [f"{fence}yaml", section.verbatim.rstrip("\n"), fence, ""]
    return "\n".join(lines)


def html(title: str, sections: Iterable[Section]) -> str:
    """The report as one file that needs no other."""
    body = [f"<h1>{escape(title)}</h1>"]
    for section in sections:
        body.append(f"<section><h2>{escape(section.title)}</h2>")
        body += [f"<p>{escape(paragraph)}</p>" for paragraph in section.paragraphs]
        if section.rows:
            body.append(_table(section))
        body += [f'<figure role="img" aria-label="{escape(plot.about)}">{plot.svg}</figure>' for plot in section.plots]
        if section.verbatim:
            body.append(f"<details><summary>show</summary><pre>{escape(section.verbatim)}</pre></details>")
        body.append("</section>")
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"


def _table(section: Section) -> str:
    header = "".join(f"<th>{escape(cell)}</th>" for cell in section.header)
    rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in section.rows)
    return f"<table>{f'<tr>{header}</tr>' if header else ''}{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _row(cells: Sequence[str], plain: bool = True) -> str:
    return "| " + " | ".join(_plain(cell) if plain else cell for cell in cells) + " |"


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", " ".join(text.split()))
