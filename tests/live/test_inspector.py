"""Rollouts for the inspector: content, validation, limits and path traversal."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from websockets.sync.client import ClientConnection

from live.conftest import LiveServer, Page
from live.episodes import finished_episode, local_rollout, start_episode
from live.test_security import SECRET, TRAVERSAL_PATHS, ask
from shared_runs import Runs
from townlet.agents.settings import AdvantageEstimate
from townlet.live import rollout_worker
from townlet.live.gym_episode import gae_advantages
from townlet.tasks.experiment import load_experiment
from townlet.train.session import start

pytest_plugins = ["live.gyms"]


@pytest.mark.parametrize(("name", "greedy"), [("cart", True), ("cart", False), ("lake", True), ("pendulum", False)])
def test_episode_equals_a_local_rollout_with_the_same_seed(
    gym_server: LiveServer, gyms: Runs, name: str, greedy: bool
) -> None:
    run = gyms[name]
    answer, (rollout, trained) = (
        finished_episode(gym_server, run.name, seed=5, greedy=greedy),
        local_rollout(run, 5, greedy),
    )
    frames = rollout.frames
    transitions = [frame.transition for frame in frames if frame.transition]
    assert (answer["error"], answer["known"], len(answer["rewards"])) == ("", len(frames), len(transitions))
    assert answer["ended"] == ("terminated" if rollout.terminated else "truncated")
    assert np.allclose(answer["obs"], [frame.obs for frame in frames], rtol=1e-4)
    assert np.allclose(answer["rewards"], [one.reward for one in transitions], rtol=1e-4)
    done = [
        np.atleast_1d(one.action).clip(-2, 2 if name == "pendulum" else 9) for one in transitions
    ]  # bounds of the torque
    assert np.allclose(answer["actions"], done, rtol=1e-4)
    kinds = {"cart": ["probabilities"], "lake": ["values"], "pendulum": ["means", "stds"]}
    assert answer["output_kinds"] == kinds[name]
    for kind in kinds[name]:
        assert np.allclose(answer["outputs"][kind], [one.outputs[kind] for one in transitions], rtol=1e-4, atol=1e-6)
    values = trained.values(torch.from_numpy(np.stack([frame.obs for frame in frames])))
    assert np.allclose(answer["values"], values, rtol=1e-3, atol=1e-5)
    assert len(answer["advantages"]) == len(transitions)
    if name == "lake":
        last = transitions[-1].reward + (
            0 if rollout.terminated else trained.loaded.recipe.agent.gamma * float(values[-1])
        )
        assert math.isclose(answer["advantages"][-1], last - float(values[-2]), rel_tol=1e-3, abs_tol=1e-5)
        assert answer["about"]["advantage"].startswith("Temporal difference")


def test_gae_advantages() -> None:
    rewards, values = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 1.5, 2.0])
    steps = AdvantageEstimate(0.9, 0.0, 1.0, "")
    assert np.allclose(gae_advantages(rewards, values, steps, terminated=True), [1.4, 2.35, 1.5])
    assert np.allclose(gae_advantages(rewards, values, steps, terminated=False), [1.4, 2.35, 3.3])
    to_go = [1 + 0.9 * 2 + 0.81 * 3, 2 + 0.9 * 3, 3.0]
    assert np.allclose(
        gae_advantages(rewards, values, AdvantageEstimate(0.9, 1.0, 1.0, ""), terminated=True), to_go - values[:3]
    )
    assert np.allclose(
        gae_advantages(rewards, values, AdvantageEstimate(0.9, 0.0, 2.0, ""), terminated=True), [2.4, 4.35, 4.5]
    )


def test_unrendered_environment_has_a_table(gym_server: LiveServer, gyms: Runs) -> None:
    answer = finished_episode(gym_server, gyms["bandit"].name)
    assert (answer["known"], answer["frames"], answer["ended"]) == (15, 0, "truncated")
    assert answer["render_problem"] == "Bandit-v0 does not support rendering."
    path = f"/api/runs/{gyms['bandit'].name}/episodes/{answer['about']['episode']}"
    assert ask(gym_server, f"{path}/frames/0.jpg")[0] == 404
    _, text, headers = ask(gym_server, f"{path}/steps.csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert headers["Content-Disposition"].endswith('-seed-1.csv"')
    assert [row["return"] for row in rows[-1:]] == [""]
    assert math.isclose(float(rows[-2]["return"]), sum(float(row["reward"]) for row in rows[:-1]))


def test_missing_rendering_package_is_named(
    gym_server: LiveServer, gyms: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    answer = finished_episode(gym_server, gyms["cart"].name, seed=3)
    problem = "CartPole-v1 cannot be rendered: pygame is not installed; install it: pip install pygame-ce"
    assert answer["render_problem"] == problem
    assert (answer["error"], answer["frames"]) == ("", 0)
    assert answer["known"] > 5


@pytest.mark.long
def test_ale_with_native_vectorization_is_rendered(tmp_path: Path) -> None:
    small = ("gym.resize=[36, 36]", "gym.max_episode_steps=9", "network.channels=[4, 8, 8]", "network.features=32")
    short = ("threads=1", "rows=2", "agent.n_steps=16", "agent.epochs=1", "env_steps=64", "evaluation.episodes=2")
    run = start(load_experiment("ALE/Pong-v5:rgb", [*small, *short, "agent.batch_size=1.0"]), tmp_path, pause_at=32).run
    rolling = rollout_worker.RolloutWorker()
    episode = rolling.start(run, rollout_worker.RolloutRequest(checkpoint="latest", seed=1))
    for _ in range(300):
        if episode.over:
            break
        time.sleep(0.1)
    rolling.close()
    assert (episode.error, episode.render_problem, episode.ended) == ("", "", "truncated")


def test_stacked_observations_are_side_by_side(gym_server: LiveServer, gyms: Runs) -> None:
    run = gyms["pixels"].name
    answer = finished_episode(gym_server, run)
    assert answer["about"]["images"] == [{"name": "obs", "count": 2, "height": 42, "width": 42}]
    assert answer["about"]["columns"] == []
    path = f"/api/runs/{run}/episodes/{answer['about']['episode']}"
    connection = gym_server.origin + path
    for place, kind, size in (("observations/0/5.png", "PNG", (84, 42)), ("frames/5.jpg", "JPEG", (600, 400))):
        with Image.open(io.BytesIO(_bytes(f"{connection}/{place}"))) as image:
            assert (image.format, image.size) == (kind, size)
            assert len(np.unique(np.asarray(image.convert("L")))) > 2
    frames = local_rollout(gyms["pixels"], 1)[0].frames
    with Image.open(io.BytesIO(_bytes(f"{connection}/observations/0/5.png"))) as image:
        sides = np.asarray(image).reshape(42, 2, 42).transpose(1, 0, 2)
    assert np.abs(sides - frames[5].obs.reshape(2, 42, 42) * 255).max() <= 1


def test_stacked_numbers_are_grouped_by_feature(gym_server: LiveServer, gyms: Runs) -> None:
    answer = finished_episode(gym_server, gyms["stacked"].name)
    about, frames = answer["about"], local_rollout(gyms["stacked"], 1)[0].frames
    assert about["features"] == [{"name": f"obs[{k}]", "frames": 3} for k in range(4)]
    assert about["columns"][:4] == ["obs[0] t-2", "obs[0] t-1", "obs[0] t", "obs[1] t-2"]
    shown = np.array([frame.obs.reshape(3, 4).T.ravel() for frame in frames])
    assert np.allclose(answer["obs"], shown, rtol=1e-4)
    assert np.allclose(shown[1:, 1::3], shown[:-1, 2::3])  # what was the newest frame is now the one before it
    path = f"/api/runs/{gyms['stacked'].name}/episodes/{about['episode']}/steps.csv"
    rows = list(csv.DictReader(io.StringIO(ask(gym_server, path)[1])))
    assert [float(rows[5][name]) for name in about["columns"]] == pytest.approx(shown[5].tolist())


def _bytes(address: str) -> bytes:
    from urllib.request import urlopen

    with urlopen(address, timeout=20) as answer:
        found: bytes = answer.read()
    return found


def test_foreign_origins_cannot_start_rollouts(gym_server: LiveServer, gyms: Runs) -> None:
    run = gyms["cart"].name
    for origin in ("http://evil.example", "null", f"{gym_server.origin}0"):
        assert start_episode(gym_server, run, origin)[0] == 403
    body = json.dumps({"checkpoint": "best", "seed": 1}).encode()
    assert ask(gym_server, f"/api/runs/{run}/episodes", "POST", body, Content_Type="application/json")[0] == 403
    assert ask(gym_server, f"/api/runs/{run}/episodes", "POST", body, Host="evil.example")[0] == 421


@pytest.mark.parametrize(
    "wish",
    [
        {"seed": -1}, {"seed": 2**31}, {"seed": 1.5}, {"seed": "1"}, {"seed": None}, {"greedy": 2}, {"checkpoint": ""},
        {"checkpoint": "x" * 61}, {"checkpoint": 3}, {"steps": 5}, {"checkpoint": "../../secret.txt"},
        {"checkpoint": "/etc/passwd"}, {"checkpoint": ".."},
    ],
)  # fmt: skip
def test_invalid_rollout_request_is_refused(gym_server: LiveServer, gyms: Runs, wish: dict[str, Any]) -> None:
    status, answer = start_episode(gym_server, gyms["cart"].name, **wish)
    assert status in (400, 422)
    assert "episode" not in answer


def test_path_traversal_through_episodes_is_refused(gym_server: LiveServer, gyms: Runs) -> None:
    (gyms["cart"].path.parent / "secret.txt").write_text(SECRET)
    run, key = gyms["cart"].name, "0" * 16
    gym_server.wait()
    for way in TRAVERSAL_PATHS:
        begun = f"/api/runs/{run}/episodes/{key}"
        for path in (f"/api/runs/{way}/episodes/{key}", f"/api/runs/{run}/episodes/{way}", f"{begun}/frames/{way}.jpg",
                     f"{begun}/observations/{way}/0.png", f"/api/runs/{run}/episodes/{way}/steps.csv"):  # fmt: skip
            status, answer, _ = ask(gym_server, path)
            assert status in (307, 400, 404, 405, 422)
            assert SECRET not in answer
    for path in (
        f"{key}?since=-1",
        f"{key}?since=99999999",
        f"{key}/frames/-1.jpg",
        f"{key}/observations/-1/0.png",
        "0" * 17,
    ):
        assert ask(gym_server, f"/api/runs/{run}/episodes/{path}")[0] in (404, 422)


def test_episode_belongs_to_its_run_and_towns_have_none(gym_server: LiveServer, gyms: Runs) -> None:
    status, answer = start_episode(gym_server, gyms["lake"].name)
    assert status == 200
    assert ask(gym_server, f"/api/runs/{gyms['lake'].name}/episodes/{answer['episode']}")[0] == 200
    assert ask(gym_server, f"/api/runs/{gyms['cart'].name}/episodes/{answer['episode']}")[0] == 404
    status, answer = start_episode(gym_server, gyms["town"].name)
    assert (status, "in a town" in answer["what"]) == (400, True)
    assert start_episode(gym_server, "unknown")[0] == 404


def test_rollouts_are_limited(gym_server: LiveServer, gyms: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = gyms["lake"].name
    answers = [start_episode(gym_server, run, seed=seed) for seed in range(40)]
    assert {status for status, _ in answers} <= {200, 429}
    assert any(status == 429 and "try again" in answer["fix"] for status, answer in answers)
    keys = [
        finished_episode(gym_server, run, seed=seed)["about"]["episode"]
        for seed in range(100, 100 + rollout_worker.CACHED_EPISODES + 1)
    ]
    kept = [ask(gym_server, f"/api/runs/{run}/episodes/{key}")[0] for key in keys]
    assert kept == [404, *([200] * rollout_worker.CACHED_EPISODES)]
    monkeypatch.setattr(rollout_worker, "MAX_STEPS", 3)
    answer = finished_episode(gym_server, run, seed=7)
    assert (answer["known"], answer["ended"]) == (4, "stopped")
    monkeypatch.setattr(rollout_worker, "MAX_IMAGE_BYTES", 1)
    assert finished_episode(gym_server, gyms["cart"].name, seed=7)["known"] == 1


def test_abandoned_rollout_is_cancelled(gym_server: LiveServer, gyms: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_worker, "ABANDON_SECONDS", -1.0)
    assert finished_episode(gym_server, gyms["lake"].name, seed=77)["error"] == (
        "the episode was abandoned by its viewer; request it again"
    )


@pytest.fixture
def talk(gym_server: LiveServer) -> ClientConnection:
    return gym_server.connect()


def test_websocket_of_a_gym_run(talk: ClientConnection, gyms: Runs) -> None:
    with talk:
        page = Page(talk)
        page.send("subscribe", run=gyms["cart"].name, source="none")
        assert page.receive("run_status")["kind"] == "gym"
        assert page.receive("metrics")["series"]["episode_return"]
        for source in ("training", "checkpoint", "recording"):
            page.send("subscribe", run=gyms["cart"].name, source=source, rows=16)
            assert "is not a town" in page.receive("error")["what"]
        requests: tuple[dict[str, Any], ...] = ({"row": 0}, {"agents": [{"kind": "policy"}]})
        for kind, request in zip(("select", "watch"), requests, strict=True):
            page.send(kind, **request)
            assert "is not a town" in page.receive("error")["what"]
        for message in ("play", "pause", "step", "reset"):
            page.send(message)  # no playback
        page.send("subscribe", run=gyms["town"].name, source="none")
        answer = page.receive("run_status")
        while answer["run"] != gyms["town"].name:  # messages about the other run may still arrive
            answer = page.receive("run_status")
        assert answer["kind"] == "town"
