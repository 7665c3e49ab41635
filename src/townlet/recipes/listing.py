"""What can be trained, for people: a line per recipe, found by any word in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from townlet.config.merge import merge
from townlet.config.yaml import Node
from townlet.errors import TownletError, did_you_mean
from townlet.gym import extras
from townlet.interfaces.counters import format_count
from townlet.recipes.catalogue import choose, titles

if TYPE_CHECKING:
    from rich.console import RenderableType

UNITS = (("env_steps", "steps"), ("minutes", "min"), ("episodes", "episodes"))


@dataclass(frozen=True)
class Line:
    """One recipe in words."""

    title: str
    agent: str
    budget: str
    about: str
    result: str  # a line for each that is known
    env: str = ""
    needs: str = ""  # the extra that it is installed with, and whether that is there

    def has(self, words: Sequence[str]) -> bool:
        """Whether every word stands somewhere in it."""
        text = " ".join((self.title, self.env, self.agent, self.about, self.result, self.needs)).lower()
        return all(word.lower() in text for word in words)


def lines(search: str = "") -> list[Line]:
    """The shipped recipes in which every word of the search occurs; raises TownletError when there is none."""
    every = titles()
    found = [line for line in map(_line, every) if line.has(search.split())]
    if not found:
        raise TownletError(f"no recipe speaks of '{search[:60]}'", did_you_mean(search, every))
    return found


def table(found: Sequence[Line]) -> RenderableType:
    """The lines side by side; below them what is known of results, each in one line."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown, results = (Table(box=None, pad_edge=False) for _ in range(2))
    for name in ("recipe", "agent", "budget"):
        shown.add_column(name, no_wrap=True)
    shown.add_column("about")
    results.add_column("recipe", no_wrap=True)
    results.add_column("known result")
    for line in found:
        about = " ".join(part for part in (line.about, line.needs) if part)
        shown.add_row(Text(line.title, "bold"), line.agent, line.budget, Text(about))
        for number, result in enumerate(line.result.splitlines()):
            results.add_row(Text("" if number else line.title, "bold"), Text(result))
    return Group(shown, "", results) if results.row_count else shown


def _line(title: str) -> Line:
    """Read from the merged file alone: a list should not wait for torch."""
    node = reduce(merge, choose(title).layers)
    agent = node.child("agent")
    budget = node.child("budget")
    limits = [
        f"{format_count(value)} {unit}" for key, unit in UNITS if budget and (value := _plain(budget, key)) is not None
    ]
    result, env = _plain(node, "result") or (), str(_plain(node, "env"))
    texts = [result] if isinstance(result, str) else [str(r["what"]) for r in result]
    if not texts and (goal := _plain(node, "reward_threshold") or extras.reward_threshold(env)) is not None:
        texts.append(f"not measured yet; solved from {goal:g} on")
    name = _plain(agent, "name") if agent else None
    said = (str(name or ""), ", ".join(limits), str(_plain(node, "description") or ""), "\n".join(texts))
    return Line(title, *said, env, _needs(env))


def _needs(env: str) -> str:
    found = extras.family(env)
    if found is None:
        return ""
    return f"Needs townlet[{found.extra}]" + ("." if found.installed else ", which is missing.")


def _plain(node: Node, key: str) -> Any:
    below = node.child(key)
    return None if below is None else below.to_python()
