"""Links to a moment: what they store, and which agents they name."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from townlet.live.app import STATIC

SCRIPT = """
const { momentFragment, parseMoment, playedAgent } = await import(%s);
const [agents, starts] = %s;
const fragment = momentFragment('run-1.x', agents.map((agent, side) => playedAgent(agent, starts[side])), 3001, 42);
console.log(JSON.stringify({ fragment, moment: parseMoment(fragment) }));
"""


def link(agents: list[dict[str, Any]], starts: list[dict[str, Any]], tmp_path: Path) -> dict[str, Any]:
    """The fragment of a link, and the moment that a page reads from it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    shutil.copytree(STATIC, tmp_path / "static", dirs_exist_ok=True)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    script = tmp_path / "link.mjs"
    script.write_text(SCRIPT % (json.dumps(str(tmp_path / "static" / "share.js")), json.dumps([agents, starts])))
    output = subprocess.run([node, str(script)], capture_output=True, text=True, timeout=60, check=True).stdout
    answer: dict[str, Any] = json.loads(output)
    return answer


def test_link_names_the_checkpoint_that_played(tmp_path: Path) -> None:
    """`latest` is another policy after more training."""
    agents: list[dict[str, Any]] = [
        {"kind": "policy", "run": None, "checkpoint": "latest", "epsilon": 0},
        {"kind": "policy", "run": "other.run", "checkpoint": "best", "epsilon": 0.5},
    ]
    starts = [{"checkpoint": "step-000000001200"}, {"checkpoint": "step-000000000600.1"}]
    found = link(agents, starts, tmp_path)
    assert found["moment"] == {
        "run": "run-1.x",
        "agents": [agents[0] | {"checkpoint": "step-000000001200"}, agents[1] | {"checkpoint": "step-000000000600.1"}],
        "seed": 3001,
        "step": 42,
    }


def test_scripted_agents_stay_as_they_are(tmp_path: Path) -> None:
    agents: list[dict[str, Any]] = [{"kind": "planner"}, {"kind": "human"}]
    assert link(agents, [{"checkpoint": None}, {"checkpoint": None}], tmp_path)["moment"]["agents"] == agents
