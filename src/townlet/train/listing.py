"""What can be trained, for people: a line per recipe, found by any word in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from townlet.config.yaml import Node
from townlet.errors import TownletError, did_you_mean
from townlet.train.overlay import overlay
from townlet.train.recipes import choose, titles

if TYPE_CHECKING:
    from rich.table import Table

UNITS = (("env_steps", "steps"), ("minutes", "min"), ("episodes", "episodes"))


@dataclass(frozen=True)
class Line:
    """One recipe in words."""

    title: str
    agent: str
    budget: str
    about: str
    result: str

    def has(self, words: Sequence[str]) -> bool:
        """Whether every word stands somewhere in it."""
        text = " ".join((self.title, self.agent, self.about, self.result)).lower()
        return all(word.lower() in text for word in words)


def lines(search: str = "") -> list[Line]:
    """The shipped recipes in which every word of the search occurs; raises TownletError when there is none."""
    every = titles()
    found = [line for line in map(_line, every) if line.has(search.split())]
    if not found:
        raise TownletError(f"no recipe speaks of '{search[:60]}'", did_you_mean(search, every))
    return found


def table(found: Sequence[Line]) -> Table:
    """The lines side by side."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    shown.add_column("recipe", no_wrap=True, style="bold")
    shown.add_column("agent", no_wrap=True)
    for name in ("budget", "about", "known result"):
        shown.add_column(name)
    for line in found:
        shown.add_row(line.title, line.agent, line.budget, line.about, line.result)
    return shown


def _line(title: str) -> Line:
    """Read from the merged file alone: a list should not wait for torch."""
    node = reduce(overlay, choose(title).layers)
    agent = node.child("agent")
    budget = node.child("budget")
    limits = [
        f"{_number(value)} {unit}" for key, unit in UNITS if budget and (value := _plain(budget, key)) is not None
    ]
    result = _plain(node, "result") or ()
    texts = [result] if isinstance(result, str) else [str(r["what"]) for r in result]
    name = _plain(agent, "name") if agent else None
    return Line(title, str(name or ""), ", ".join(limits), str(_plain(node, "description") or ""), " ".join(texts))


def _plain(node: Node, key: str) -> Any:
    below = node.child(key)
    return None if below is None else below.plain()


def _number(value: float) -> str:
    """2e6 as 2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
