"""HTTP routes for a class: trainings, tournaments, joining."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import warm
from live.conftest import LiveServer
from townlet.live.tournament import MAX_LIMIT, TournamentRequest, Tournaments, raised_limit
from townlet.live.training_jobs import Job, measured_speeds
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.lock import lock_holder
from townlet.runs.overview import make_overview
from townlet.train.session import start
from townlet.web.tokens import OPERATOR, VIEWER
from train.tiny import tiny
from web.generated import generate_tokens

POND = "{name: Pond, icon: 🦆, cell: [0, 0], each_tick: {energy: .2}}"
TOWN_L0 = {"world": "town-l0", "text": None, "variant": "dqn", "env_steps": 20_000_000}
WORLD = f"extends: town-l0\ndescription: Ours\naffordances: [{POND}]\n"


def call(served: LiveServer | ServerProcess, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
    request = urllib.request.Request(f"{served.origin}/api/{path}", headers={"Origin": served.origin})
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    if body is not None:
        request.data = json.dumps(body).encode()
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            data = answer.read()
            return answer.status, json.loads(data) if "json" in answer.headers["Content-Type"] else data
    except urllib.error.HTTPError as error:
        data = error.read()
        return error.code, json.loads(data) if "json" in error.headers["Content-Type"] else data


def wait_for(served: LiveServer | ServerProcess, condition: Any, token: str = "") -> dict[str, Any]:
    """The newest training once the condition holds."""
    until = time.monotonic() + 90
    while time.monotonic() < until:
        job: dict[str, Any] = call(served, "trainings", token=token)[1]["jobs"][0]
        if condition(job):
            return job
        time.sleep(0.2)
    raise AssertionError(job)


@pytest.fixture
def school(tmp_path: Path) -> Iterator[LiveServer]:
    (tmp_path / "runs").mkdir()
    one = LiveServer(tmp_path / "runs", None, tmp_path / "worlds")
    one.wait()
    yield one
    one.stop()


def test_training_leaves_an_ordinary_run_and_can_be_stopped(school: LiveServer, tmp_path: Path) -> None:
    request = {"world": "our-town", "text": WORLD, "variant": "dqn", "env_steps": 20_000_000}
    status, job = call(school, "trainings", request)
    assert (status, job["state"], job["title"]) == (200, "running", "our-town:dqn")
    assert (tmp_path / "worlds" / "our-town.yaml").read_text("utf-8") == WORLD
    status, refusal = call(school, "trainings", request)
    assert (status, refusal["what"]) == (400, "a training is already running")
    job = wait_for(school, lambda job: job["run"] is not None)
    run = Run(tmp_path / "runs" / job["run"])
    until = time.monotonic() + 60
    while make_overview(run).env_steps == 0 and time.monotonic() < until:
        time.sleep(0.1)
    assert call(school, f"trainings/{job['id']}/stop", {})[0] == 200
    job = wait_for(school, lambda job: job["state"] != "running")
    assert job["state"] == "stopped"
    assert make_overview(run).state == "interrupted"
    assert checkpoint.latest(run.checkpoints) is not None
    assert run.meta()["recipe"] == "our-town:dqn"


def test_world_of_the_shipped_agent_is_trained_in_the_folder_of_runs(school: LiveServer, tmp_path: Path) -> None:
    listed = call(school, "runs")[1]
    assert [(one["name"], one["shipped"]) for one in listed] == [("elder", True)]
    text = call(school, "runs/elder")[1]["text"]
    assert "potential" not in text  # the recipe adds its own shaping
    request = {"world": "our-town", "text": text, "variant": "dqn", "env_steps": 1000}
    assert call(school, "trainings", request)[0] == 200
    assert wait_for(school, lambda job: job["state"] != "running")["state"] == "finished"
    assert [run.meta()["recipe"] for run in Run.list(tmp_path / "runs")] == ["our-town:dqn"]


def test_training_that_finishes_and_one_that_fails(school: LiveServer, tmp_path: Path) -> None:
    request = {"world": "town-l0", "text": None, "variant": "dqn", "env_steps": 2000}
    assert call(school, "trainings", request)[0] == 200
    job = wait_for(school, lambda job: job["state"] != "running")
    assert job["state"] == "finished"
    assert make_overview(Run.list(tmp_path / "runs")[0]).state == "finished"
    for wrong, what in (
        ({"variant": "sac"}, "no variant 'sac'"),
        ({"world": "nowhere"}, "there is no world 'nowhere'"),
        ({"world": "town", "text": WORLD}, "is a shipped world and cannot be overwritten"),
        ({"world": "../out", "text": WORLD}, "is not a valid name"),
        ({"world": "bad", "text": "extends: town\nnonsense: 1\n"}, "unknown key 'nonsense'"),
    ):
        status, refusal = call(school, "trainings", request | wrong)
        assert status == 400
        assert what in refusal["what"]
    for env_steps in (0, 10**9, "many"):
        assert call(school, "trainings", request | {"env_steps": env_steps})[0] == 422
    assert not list((tmp_path).glob("out*"))
    unknown = request | {"world": "never-saved", "text": WORLD, "variant": "sac"}
    assert "no variant 'sac'" in call(school, "trainings", unknown)[1]["what"]
    discounted = WORLD + "rewards: [survival, {name: potential, gamma: 0.5}]\n"
    refusal = call(school, "trainings", request | {"world": "never-saved", "text": discounted})[1]
    assert "gamma 0.5, but agent.gamma is" in refusal["what"]
    assert not (tmp_path / "worlds").exists()  # a world in which no training can start is not saved


def test_edited_world_is_trained_again_under_the_next_name(school: LiveServer, tmp_path: Path) -> None:
    request = {"world": "our-town", "text": WORLD, "variant": "dqn", "env_steps": 1000}
    titles = []
    for text in (WORLD, WORLD, WORLD + "max_steps: 50\r\n", WORLD + "max_steps: 50\r\n"):
        status, job = call(school, "trainings", request | {"text": text})
        assert status == 200, job
        titles.append(job["title"])
        call(school, f"trainings/{job['id']}/stop", {})
        wait_for(school, lambda job: job["state"] != "running")
    assert titles == ["our-town:dqn", "our-town:dqn", "our-town-2:dqn", "our-town-2:dqn"]
    assert {path.name for path in (tmp_path / "worlds").iterdir()} == {"our-town.yaml", "our-town-2.yaml"}


def test_only_the_operator_reads_why_a_training_failed(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    tokens = generate_tokens(OPERATOR, VIEWER)
    served = LiveServer(tmp_path / "runs", None, tmp_path / "worlds", tokens)
    served.wait()
    operator, viewer = tokens.first(OPERATOR) or "", tokens.first(VIEWER) or ""
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "runs").write_text("no folder")
    call(served, "trainings", TOWN_L0 | {"world": "our-town", "text": WORLD}, operator)
    job = wait_for(served, lambda job: job["state"] != "running", token=operator)
    assert (job["state"], job["run"]) == ("failed", None)
    assert "Traceback" not in job["error"]
    assert str(tmp_path) in job["error"]
    (shown,) = call(served, "trainings", token=viewer)[1]["jobs"]
    assert shown == job | {"error": ""}
    served.stop()


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("Traceback (most recent call last):\n  File x\nValueError: too hot\n\n", "ValueError: too hot"),
        ("A warning.\nrun: no space left\n    fix: delete something\n", "run: no space left; delete something"),
    ],
)
def test_failure_is_the_last_line_of_the_output(output: str, error: str) -> None:
    code = f"import sys; sys.stderr.write({output!r}); sys.exit(1)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    job = Job("1", "town:dqn", 1000, process)
    job.read_output()
    until = time.monotonic() + 30
    while job.last_error != error and time.monotonic() < until:
        time.sleep(0.01)
    process.wait()
    assert job.as_json() == {
        "id": "1", "title": "town:dqn", "env_steps": 1000, "run": None, "state": "failed", "error": error,
    }  # fmt: skip


class ServerProcess:
    """`townlet live` in a process, without tokens."""

    def __init__(self, folder: Path) -> None:
        (folder / "runs").mkdir()
        command = [sys.executable, "-m", "townlet", "live", "--no-token", "--port", "0", "--root", "runs"]
        self.process = warm.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", self.process.stdout.readline())
        assert found
        self.origin = found[0]

    def wait(self) -> None:
        """Wait until it answers."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with suppress(OSError):
                urllib.request.urlopen(f"{self.origin}/healthz", timeout=5).close()
                return
            time.sleep(0.1)
        raise AssertionError("the server does not answer")


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGHUP, id="terminal-closed", marks=pytest.mark.long),
    ],
)
def test_training_ends_with_its_server_and_is_saved(tmp_path: Path, number: signal.Signals) -> None:
    served = ServerProcess(tmp_path)
    served.wait()
    assert call(served, "trainings", TOWN_L0)[0] == 200
    job = wait_for(served, lambda job: job["run"] is not None)
    run = Run(tmp_path / "runs" / job["run"])
    until = time.monotonic() + 60
    while make_overview(run).env_steps == 0 and time.monotonic() < until:
        time.sleep(0.1)
    served.process.send_signal(number)
    served.process.communicate(timeout=30)
    until = time.monotonic() + 30
    while make_overview(run).state == "running" and time.monotonic() < until:
        time.sleep(0.1)
    assert make_overview(run).state == "interrupted"
    assert lock_holder(run.path) is None
    assert checkpoint.latest(run.checkpoints) is not None


def test_server_that_stops_saves_its_training(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    served = LiveServer(tmp_path / "runs", None, tmp_path / "worlds")
    served.wait()
    call(served, "trainings", {"world": "town-l0", "text": None, "variant": "dqn", "env_steps": 20_000_000})
    job = wait_for(served, lambda job: job["run"] is not None)
    served.stop()
    run = Run(tmp_path / "runs" / job["run"])
    assert make_overview(run).state == "interrupted"


def test_recipes_fit_the_world(school: LiveServer) -> None:
    choices = {name: call(school, f"trainings?world={name}")[1]["choices"] for name in ("town", "town-l3", "no-world")}
    assert {"dqn", "ppo", "life"} <= {choice["variant"] for choice in choices["town"]}
    assert [choice["variant"] for choice in choices["town-l3"]] == ["ppo"]
    assert choices["no-world"] == choices["town"]
    assert all(choice["description"] and choice["env_steps"] <= 2e7 for choice in choices["town"])
    assert [choice["variant"] for choice in choices["town"] if choice["recommended"]] == ["dqn"]
    assert {choice["steps_per_second"] for choice in choices["town"]} == {None}  # no training was long enough


def test_speed_of_a_recipe_is_measured_on_this_machine_only(run: Run) -> None:
    overview = make_overview(run)
    short = {**overview.meta, "seconds": 1.0}  # most of it preparation
    known = {**overview.meta, "seconds": 100.0}
    elsewhere = {**known, "machine": {"system": "Plan 9", "processor": "MIPS"}}
    assert measured_speeds([replace(overview, meta=short)]) == {}
    assert measured_speeds([replace(overview, meta=elsewhere)]) == {}
    assert measured_speeds([replace(overview, meta=known)]) == {"dqn": overview.env_steps / 100}


def test_visits_are_those_of_every_step_of_training(served: LiveServer, run: Run) -> None:
    status, maps = call(served, f"runs/{run.name}/maps")
    assert status == 200
    assert sum(maps["visits"]) == 1200
    assert maps["counted"] == 1


def test_viewer_starts_neither_trainings_nor_tournaments(run: Run, tmp_path: Path) -> None:
    tokens = generate_tokens(OPERATOR, VIEWER)
    served = LiveServer(run.path.parent, run.name, tmp_path / "worlds", tokens)
    served.wait()
    viewer = tokens.first(VIEWER) or ""
    training = {"world": "town-l0", "text": None, "variant": "dqn", "env_steps": 2000}
    for path, body in (("trainings", training), ("trainings/x/stop", {}), ("tournaments", {"run": run.name})):
        assert call(served, path, body, viewer)[0] == 403
    assert call(served, "trainings", token=viewer)[0] == 200
    served.stop()


def finished(served: LiveServer, id: str) -> dict[str, Any]:
    """The table of a tournament once all have played."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        table: dict[str, Any] = call(served, f"tournaments/{id}")[1]
        if table["over"]:
            return table
        time.sleep(0.1)
    raise AssertionError(table)


def test_tournament_orders_agents_by_lifetime(served: LiveServer, run: Run) -> None:
    served.wait()
    assert call(served, f"tournaments?run={run.name}") == (200, None)
    status, table = call(served, "tournaments", {"run": run.name, "episodes": 20})
    assert status == 200
    assert call(served, "tournaments", {"run": run.name})[0] == 400  # one at a time
    table = finished(served, table["id"])
    assert call(served, f"tournaments?run={run.name}")[1] == table
    assert call(served, "tournaments?run=other")[1] is None
    lines = {line["label"]: line for line in table["lines"]}
    assert set(lines) >= {"random agent", "planner, which knows the rules", "town:dqn, seed 0"}
    means = [line["mean"] for line in table["lines"] if "mean" in line]
    assert means == sorted(means, reverse=True)
    assert table["lines"][0]["label"].startswith("planner")
    assert all(line["low"] <= line["mean"] <= line["high"] for line in table["lines"] if "mean" in line)
    assert table["limit"] == 160  # four times that of the run's world
    assert table["problem"] == ""


def test_agents_that_cannot_play_or_fail_have_a_line(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (run.name, "broken"):
        shutil.copytree(run.path, tmp_path / name)
    other = start(tiny("town-l0:dqn"), tmp_path).run
    best = checkpoint.best(Run(tmp_path / "broken").checkpoints)
    assert best is not None
    shutil.rmtree(best.path)
    best.path.write_text("no folder")
    served = LiveServer(tmp_path, None, tmp_path / "worlds")
    served.wait()
    _, table = call(served, "tournaments", {"run": other.name, "episodes": 2})
    lines = {line["run"]: line for line in finished(served, table["id"])["lines"]}
    assert "cannot act in town-l0: the map has 5×5 cells, in training it had 8×8" in lines[run.name]["problem"]
    assert lines["broken"]["problem"]
    assert "mean" in lines[other.name]
    served.stop()


def test_error_of_the_program_ends_a_tournament_with_a_problem(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("townlet.live.tournament.with_shipped", None)  # as a bug would
    tournaments = Tournaments(run.path.parent)
    one = tournaments.start(TournamentRequest(run=run.name, episodes=2))
    until = time.monotonic() + 60
    while not one.over and time.monotonic() < until:
        time.sleep(0.05)
    assert one.problem == "it failed; the log of the server has the details"
    assert len(one.lines) == 2
    assert "Traceback" in caplog.text
    tournaments.close()


def test_tournament_stops_with_the_server(run: Run) -> None:
    tournaments = Tournaments(run.path.parent)
    one = tournaments.start(TournamentRequest(run=run.name, episodes=200))
    tournaments.close()
    until = time.monotonic() + 5
    while not one.over and time.monotonic() < until:
        time.sleep(0.05)
    assert one.problem == "the server has stopped"


def test_limit_of_a_tournament_is_never_below_that_of_the_world() -> None:
    assert [raised_limit(steps) for steps in (40, 1000, 2000, 4000, 9000)] == [160, 4000, MAX_LIMIT, MAX_LIMIT, 9000]


def test_others_join_with_a_link_and_a_code(served: LiveServer, run: Run, tmp_path: Path) -> None:
    served.wait()
    assert call(served, "join") == (200, {"link": None, "local": False})
    assert call(served, "join.svg")[0] == 404
    from townlet.live.app import make_app
    from townlet.live.hub import Hub

    app = make_app(Hub(run.path.parent), tmp_path, join_link="http://127.0.0.1:8808/?token=abc")
    from starlette.testclient import TestClient

    client = TestClient(app)
    assert client.get("/api/join").json() == {"link": "http://127.0.0.1:8808/?token=abc", "local": True}
    code = client.get("/api/join.svg")
    assert code.headers["content-type"].startswith("image/svg+xml")
    assert code.text.startswith("<svg")
