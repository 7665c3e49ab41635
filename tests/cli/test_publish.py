"""`townlet publish`: a folder that can be played and evaluated, and the upload to the Hub."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from ruamel.yaml import YAML

import warm
from cli.program import Program
from small import GYM, SMALL
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment
from townlet.train.session import start
from video_info import read_video


def published(townlet: Program, run: Run, to: Path) -> str:
    done = townlet("publish", run.name, "--to", str(to), "--episodes", "4", "--root", str(run.path.parent))
    assert done.code == 0, done.err
    return done.out


def front_matter(card: str) -> dict[str, Any]:
    _, front, _ = card.split("---\n", 2)
    found: dict[str, Any] = YAML(typ="safe").load(front)
    return found


def check_card(folder: Path) -> dict[str, Any]:
    """Check the links and commands of a model card."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (folder / target).is_file(), target
    assert re.search(r"^\| trained \|", text, re.MULTILINE)
    assert re.search(r"^\| random \|", text, re.MULTILINE)
    with Image.open(folder / "curve.png") as curve:
        assert curve.size > (600, 300)
    about = front_matter(text)
    assert about["library_name"] == "townlet"
    assert {"reinforcement-learning", "townlet"} <= set(about["tags"])
    return about


def test_published_folder_is_self_contained(townlet: Program, gym_runs: dict[str, Run], tmp_path: Path) -> None:
    run, to = gym_runs["scaled"], tmp_path / "agent"
    published(townlet, run, to)
    about = check_card(to)
    assert about["license"] == "mit"
    results = json.loads((to / "results.json").read_text())
    (result,) = about["model-index"][0]["results"]
    assert result["dataset"]["name"] == "Acrobot-v1"
    assert result["metrics"][0]["value"] == pytest.approx(results["trained"]["mean"], abs=1e-3)
    assert read_video(to / "replay.mp4").size == (500, 500)
    text = (to / "README.md").read_text()
    assert f"townlet train Acrobot-v1:ppo {run.meta()['overrides'][0]}" in text
    assert (to / "resolved.yaml").read_text() == run.resolved_file.read_text()
    assert not list(to.glob("*.db"))
    evaluated = townlet("eval", str(to), "--episodes", "4", "--json")
    assert json.loads(evaluated.out)["trained"] == results["trained"]  # a copy can be evaluated
    refused = townlet("train", "--resume", str(to))
    assert refused.code == 2
    assert "cannot be resumed" in refused.err
    published(townlet, run, to)  # again, to the same folder
    check_card(to)


def test_earlier_publication_is_kept_until_the_next_is_complete(
    townlet: Program, gym_runs: dict[str, Run], tmp_path: Path
) -> None:
    run, to = gym_runs["qlearning"], tmp_path / "agent"
    published(townlet, run, to)
    (to / ".gitattributes").write_text("*.mp4 filter=lfs")
    before = {path: path.read_bytes() for path in to.rglob("*") if path.is_file()}
    # Into the folder of the run itself, under any name.
    (tmp_path / "link").symlink_to(to)
    for place in (to, tmp_path / "link"):
        done = townlet("publish", str(to), "--to", str(place), "--episodes", "2")
        assert done.code == 2
        assert "is the run to publish" in done.err
    # An error during publishing.
    broken = tmp_path / "broken"
    shutil.copytree(run.path, broken)
    (broken / "recipe.yaml").unlink()
    assert townlet("publish", str(broken), "--to", str(to), "--episodes", "2").code != 0
    assert {path: path.read_bytes() for path in to.rglob("*") if path.is_file()} == before
    # A run without a curve publishes none, and other files in the folder stay.
    (tmp_path / "bare").mkdir()
    published(townlet, run, tmp_path / "bare")
    townlet("publish", str(tmp_path / "bare"), "--to", str(to), "--episodes", "2")
    assert (to / ".gitattributes").exists()
    assert not (to / "curve.png").exists()
    assert "curve.png" not in (to / "README.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent", "bare", "broken", "link"]


def test_town_is_published(townlet: Program, tmp_path: Path) -> None:
    words = [*SMALL["town-l0:dqn"], "change.max_steps=20", "budget.env_steps=320"]
    published(townlet, start(load_experiment("town-l0:dqn", words), tmp_path / "runs").run, tmp_path / "agent")
    about = check_card(tmp_path / "agent")
    assert about["model-index"][0]["results"][0]["metrics"][0]["type"] == "mean_length"
    done = townlet("play", str(tmp_path / "agent"), "--table-episodes", "3")
    assert done.code == 0
    assert "this agent survives" in done.out


def test_card_mentions_a_missing_video(townlet: Program, tmp_path: Path) -> None:
    words = ["rows=4", "agent.n_steps=16", "env_steps=512", "metrics.every=128", *GYM]
    assert townlet("train", "Bandit-v0:ppo", *words, "--root", str(tmp_path / "runs")).code == 0
    run = Run.open("latest", tmp_path / "runs")
    assert "Bandit-v0 cannot render images" in published(townlet, run, tmp_path / "agent")
    assert "There is no video" in (tmp_path / "agent" / "README.md").read_text()


def test_publishing_without_pygame_tells_how_to_get_the_video(
    townlet: Program, gym_runs: dict[str, Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    problem = "CartPole-v1 cannot be rendered: pygame is not installed; install it: pip install pygame-ce"
    assert f"No video: {problem}.\n" in published(townlet, gym_runs["ppo"], tmp_path / "agent")


def test_foreign_files_are_not_overwritten(townlet: Program, gym_runs: dict[str, Run], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    run = gym_runs["ppo"]
    done = townlet("publish", run.name, "--to", str(tmp_path), "--root", str(run.path.parent))
    assert done.code == 2
    assert "contains other files" in done.err
    done = townlet("publish", run.name, "--to", str(tmp_path / "thesis.txt"), "--root", str(run.path.parent))
    assert done.code == 2
    assert "thesis.txt is not a folder" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


class Hub(BaseHTTPRequestHandler):
    """A fake Hub that accepts uploads and stores them."""

    asked: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        type(self).asked.append((self.path, body))
        answer: dict[str, Any] = {}
        if self.path.endswith("/repos/create"):
            answer = {"url": f"http://{self.headers['Host']}/me/cartpole", "name": "me/cartpole", "id": "me/cartpole"}
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            answer = {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]}
        elif "/commit/" in self.path:
            place = f"http://{self.headers['Host']}/me/cartpole/commit/{'0' * 40}"
            answer = {"success": True, "commitOid": "0" * 40, "commitUrl": place}
        self._say(answer)

    def do_GET(self) -> None:
        self._say({"type": "user", "name": "me", "orgs": [], "sha": "0" * 40, "siblings": [], "id": "me/cartpole"})

    def _say(self, answer: dict[str, Any]) -> None:
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words: Any) -> None:
        """Log nothing."""


@pytest.fixture
def hub() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    Hub.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", Hub.asked
    server.shutdown()
    thread.join()
    server.server_close()


def to_the_hub(run: Run, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run in a separate process: the Hub's library reads its endpoint at import."""
    words = ["publish", run.name, "--to", "hub:me/cartpole", "--episodes", "2", "--root", str(run.path.parent)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    command = [sys.executable, "-m", "townlet", *words]
    given = clean | {"HF_HOME": str(folder), "HF_HUB_DISABLE_XET": "1", **environment}
    return warm.run(command, env=given, capture_output=True, text=True, check=False, timeout=300)


def test_upload_contains_every_file(
    gym_runs: dict[str, Run], tmp_path: Path, hub: tuple[str, list[tuple[str, bytes]]]
) -> None:
    address, asked = hub
    done = to_the_hub(gym_runs["qlearning"], tmp_path, HF_ENDPOINT=address, HF_TOKEN="hf_test")
    assert done.returncode == 0, done.stderr
    created = next(json.loads(body) for path, body in asked if path.endswith("/repos/create"))
    assert created["name"] == "cartpole"
    (commit,) = [body for path, body in asked if "/commit/" in path]
    entries = [json.loads(line) for line in commit.splitlines()]
    sent = {e["value"]["path"]: base64.b64decode(e["value"]["content"]) for e in entries if e["key"] == "file"}
    assert {"README.md", "policy.safetensors", "curve.png", "resolved.yaml", "meta.json"} <= set(sent)
    assert front_matter(sent["README.md"].decode())["library_name"] == "townlet"


def test_missing_hub_login_is_reported(gym_runs: dict[str, Run], tmp_path: Path) -> None:
    done = to_the_hub(gym_runs["qlearning"], tmp_path)
    assert done.returncode == 2
    assert "hf auth login" in done.stderr
    assert "Traceback" not in done.stderr


def test_unreachable_hub_shows_no_traceback(tmp_path: Path) -> None:
    script = "from pathlib import Path; from townlet.sharing.publish import upload; upload(Path(), 'me/cartpole')"
    given = os.environ | {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": "hf_test"}
    done = warm.run([sys.executable, "-c", script], env=given, capture_output=True, text=True, check=False, timeout=120)
    assert "TownletError: hub:me/cartpole: the Hub cannot be reached" in done.stderr
