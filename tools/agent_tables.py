"""Generates the tables of docs/agents.md from the registry of agents: `python tools/agent_tables.py`.

A table is between `<!-- agents -->` or `<!-- settings: NAME -->` and `<!-- end -->`; other text is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from townlet.agents.registry import BUILT_IN, AgentEntry, entry
from townlet.config.schedule import Schedule
from townlet.config.type_info import allowed_types_of_field
from townlet.interfaces.vec_env import Actions, Binary, Continuous, Discrete
from townlet.recipes.render import KeySection, key_sections

DOCUMENT: Final = Path(__file__).resolve().parents[1] / "docs" / "agents.md"
TABLE: Final = re.compile(r"(<!-- (agents|settings: \w+) -->\n).*?(<!-- end -->)", re.DOTALL)
ACTIONS: Final[dict[type[Actions], str]] = {Discrete: "discrete", Binary: "binary", Continuous: "continuous"}
OMITTED: Final = ("name", "file")  # settings of all agents, described once in the text


def update_tables(text: str) -> str:
    """The document with its tables generated again."""
    return TABLE.sub(lambda found: found[1] + "\n".join(_table(found[2])) + "\n" + found[3], text)


def _table(which: str) -> list[str]:
    if which == "agents":
        head = ("agent", "learns", "data", "actions", "recurrent network", "default rows", "several processes")
        return _format(head, (_agent_row(entry(name)) for name in BUILT_IN))
    return _format(("setting", "default", "changeable via", "effect"), _setting_rows(which.removeprefix("settings: ")))


def _format(head: Sequence[str], rows: Iterator[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table, with `|` escaped in its cells."""
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in (head, ["---"] * len(head), *rows))
    return [f"| {' | '.join(row)} |" for row in escaped]


def _agent_row(agent: AgentEntry) -> list[str]:
    learns = "action values" if agent.kind == "value" else "a policy"
    data = "on-policy" if agent.on_policy else "off-policy"
    actions = ", ".join(ACTIONS[kind] for kind in agent.actions)
    recurrent = agent.recurrent if agent.uses_network else "has no network"
    processes = "yes" if agent.shard_axes else "no"
    if agent.unshardable:
        processes += f", without {' and '.join(f'`{key}`' for key in agent.unshardable)}"
    return [f"[`{agent.name}`](#{agent.name})", learns, data, actions, recurrent, str(agent.rows), processes]


def _setting_rows(name: str) -> Iterator[list[str]]:
    agent = entry(name)
    for section in _sections(name):
        for key in section.keys:
            path = key.path.removeprefix("agent.")
            yield [f"`{path}`", f"`{key.default}`", _changeable_via(agent, path), key.description]


def _changeable_via(agent: AgentEntry, path: str) -> str:
    """The means by which a setting can change during training."""
    models: list[type[BaseModel]] = [agent.settings]
    scheduled = False
    for key in path.split("."):
        kinds = [kind for model in models for kind in allowed_types_of_field(model.model_fields[key])]
        models = [kind.model for kind in kinds if kind.model is not None and kind.model is not Schedule]
        scheduled = any(kind.model is Schedule for kind in kinds)
    return ", ".join(["schedule"] * scheduled + ["`tune.yaml`"] * (path in agent.changeable))


def _sections(name: str) -> list[KeySection]:
    """The settings of an agent without those in OMITTED, then one section for each nested model."""
    sections = key_sections()
    (agent,) = [section for section in sections if section.title == f"agent: {name}"]
    keys = tuple(key for key in agent.keys if key.path.removeprefix("agent.") not in OMITTED)
    paths = {key.path for key in keys}
    return [KeySection(agent.title, agent.about, keys), *(section for section in sections if section.title in paths)]


if __name__ == "__main__":
    DOCUMENT.write_text(update_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
