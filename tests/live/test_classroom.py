"""HTTP routes for a class: trainings, tournaments, shared episodes, joining."""

from __future__ import annotations

import io
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from live.conftest import LiveServer, Page
from live.test_security import ask
from townlet.live.agents import ScriptedActor
from townlet.live.film import MAX_FRAMES, GifRenderer
from townlet.live.playback import PlayedEpisode
from townlet.live.rollout_worker import TooManyRollouts
from townlet.rng import Streams
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.overview import make_overview
from townlet.town.planner import RandomPlayer
from townlet.town.world.load import load
from townlet.web.tokens import OPERATOR, VIEWER
from web.generated import generate_tokens

POND = "{name: Pond, icon: 🦆, cell: [0, 0], each_tick: {energy: .2}}"
WORLD = f"extends: town-l0\ndescription: Ours\naffordances: [{POND}]\n"


def call(served: LiveServer, path: str, body: Any = None, token: str = "") -> tuple[int, Any]:
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


def wait_for(served: LiveServer, condition: Any, seconds: float = 90.0) -> dict[str, Any]:
    """The newest training once the condition holds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        job: dict[str, Any] = call(served, "trainings")[1]["jobs"][0]
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


def test_tournament_orders_agents_by_lifetime(served: LiveServer, run: Run) -> None:
    served.wait()
    status, table = call(served, "tournaments", {"run": run.name, "text": None, "episodes": 20})
    assert status == 200
    assert call(served, "tournaments", {"run": run.name, "text": None})[0] == 400  # one at a time
    until = time.monotonic() + 60
    while not table["over"] and time.monotonic() < until:
        time.sleep(0.1)
        table = call(served, f"tournaments/{table['id']}")[1]
    lines = {line["label"]: line for line in table["lines"]}
    assert set(lines) >= {"random agent", "planner, which knows the rules", "town:dqn, seed 0"}
    means = [line["mean"] for line in table["lines"] if "mean" in line]
    assert means == sorted(means, reverse=True)
    assert table["lines"][0]["label"].startswith("planner")
    assert all(line["low"] <= line["mean"] <= line["high"] for line in table["lines"] if "mean" in line)
    assert table["limit"] == 160  # four times that of the run's world
    other = {"run": run.name, "text": "extends: town-l0\n", "episodes": 2}
    _, table = call(served, "tournaments", other)
    until = time.monotonic() + 60
    while not table["over"] and time.monotonic() < until:
        time.sleep(0.1)
        table = call(served, f"tournaments/{table['id']}")[1]
    (line,) = (line for line in table["lines"] if line["run"] == run.name)
    assert line["problem"] == "The place “Bar” is gone."


def test_watched_episode_is_saved_as_gif(served: LiveServer, page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="checkpoint")
    begin = page.receive("episode_start")
    page.send("step", by=12)
    while max(page.receive("frame")["age"]) < 12:
        pass
    status, data = call(served, f"watched/{begin['episode']}.gif")
    assert status == 200
    image = Image.open(io.BytesIO(data))
    assert getattr(image, "n_frames", 1) >= 10  # equal pictures are merged
    assert image.size == (480, 320)
    for site, expected in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert ask(served, f"/api/watched/{begin['episode']}.gif", Sec_Fetch_Site=site)[0] == expected
    status, refusal = call(served, "watched/99999999.gif")  # all streamed episodes are counted
    assert (status, refusal["what"]) == (404, "this episode is no longer on screen")


def test_one_gif_is_made_at_a_time_and_kept() -> None:
    world = load("town-l0")
    episodes = [
        PlayedEpisode(world, ScriptedActor(RandomPlayer(Streams(seed).numpy("x")), world), seed, "", 0, "Ada")
        for seed in (1, 2)
    ]
    for episode in episodes:
        episode.reach(150)
    renderer, made = GifRenderer(), list[bytes]()
    thread = threading.Thread(target=lambda: made.append(renderer.gif(episodes[0])))
    thread.start()
    while not renderer._lock.locked():
        time.sleep(0.001)
    with pytest.raises(TooManyRollouts):
        renderer.gif(episodes[1])
    thread.join()
    assert renderer.gif(episodes[0]) is made[0]
    assert getattr(Image.open(io.BytesIO(made[0])), "n_frames", 1) <= MAX_FRAMES


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
