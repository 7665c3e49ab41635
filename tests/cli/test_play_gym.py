"""`townlet play` with Gymnasium environments: in a pipe, a terminal, a window and as a video."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from cli.program import Program
from cli.terminal import at_a_terminal
from townlet.cli.play_targets import GymKeys
from townlet.runs.folder import Run
from townlet.tasks.gym_playback import RenderedGym, half_block_text
from video_info import read_video


def test_pipe_prints_a_line_per_episode_and_a_summary(townlet: Program, gym_runs: dict[str, Run]) -> None:
    run = gym_runs["ppo"]
    words = ["--mode", "trained", "--mode", "random", "--episodes", "2"]
    done = townlet("play", run.name, *words, "--root", str(run.path.parent))
    assert done.code == 0
    assert "\x1b" not in done.out
    for name in ("trained", "random"):
        episodes = re.findall(
            rf"^{name}, episode (\d): (\d+)(?:\.\d+)? in (\d+) steps, terminated$", done.out, re.MULTILINE
        )
        assert [number for number, *_ in episodes] == ["1", "2"]
        assert all(won == steps for _, won, steps in episodes)  # the reward of every step is 1
        assert re.search(rf"^{name}: \d+(\.\d+)?, \d+(\.\d+)?$", done.out, re.MULTILINE)
    assert re.search(
        r"This agent gets \d+(\.\d+)? on average over 2 episodes; solved at 475\.",
        done.out,
    )


def test_ansi_rendering_marks_the_agent(townlet: Program) -> None:
    done = townlet("play", "FrozenLake-v1", "kwargs.is_slippery=false", "--episodes", "1")
    assert done.code == 0
    assert "random, step 0" in done.out
    assert "[S]FFF" in done.out
    assert "\x1b" not in done.out


def test_seed_determines_the_episodes(townlet: Program) -> None:
    first, again, other = (townlet("play", "CartPole-v1", "--seed", seed).out for seed in ("1", "1", "2"))
    assert first == again
    assert first != other


def test_sample_draws_other_actions(townlet: Program, gym_runs: dict[str, Run]) -> None:
    run = gym_runs["ppo"]
    plain, drawn = (townlet("play", run.name, *w, "--root", str(run.path.parent)).out for w in ([], ["--sample"]))
    assert plain != drawn


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["CartPol-v1"], "there is no environment 'CartPol-v1'"),
        (["CartPole-v1", "--mode", "trained"], "or train one: `townlet train CartPole-v1`"),
        (["CartPole-v1", "--mode", "planner"], "available: random, human"),
        (["CartPole-v1", "--mode", "human"], "fix: use --mode random"),
        (["CartPole-v1", "--sample"], "--sample is for a trained agent"),
        (["town", "--greedy"], "--greedy is for a trained agent"),
        (["CartPole-v1", "--table-episodes", "5"], "--table-episodes: CartPole-v1 is not a town"),
        (["CartPole-v1", "--step"], "--step needs a keyboard"),
        (["CartPole-v1", "--window"], "there is no screen for a window"),
        (["CartPole-v1", "kwargz.x=1"], "kwargz"),
        (["CartPole-v1:ppo"], "townlet train CartPole-v1:ppo"),
        (["Bandit-v0", "--video", "x.mp4"], "Bandit-v0 cannot render images"),
        (["CartPole-v1", "--video", "x.gif"], "a video is an .mp4 file"),
    ],
)
def test_invalid_options_are_explained(
    townlet: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    done = townlet("play", *words, "--root", str(tmp_path))
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "words", [["play", "CartPole-v1", "--video", "x.mp4"], ["train", "CartPole-v1:ppo", "video.episodes=1"]]
)
def test_missing_pygame_names_the_command(
    townlet: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    monkeypatch.chdir(tmp_path)
    done = townlet(*words, "--root", str(tmp_path))
    assert done.code == 2
    problem = "CartPole-v1 cannot be rendered: pygame is not installed\n    fix: install it: pip install pygame-ce\n"
    assert done.err.endswith(problem)
    assert not list(tmp_path.iterdir())


def test_recipe_without_run_is_played_at_random(townlet: Program, tmp_path: Path) -> None:
    words = ["--mode", "random", "--episodes", "1", "--root", str(tmp_path)]
    done = townlet("play", "CartPole-v1:ppo", "gym.max_episode_steps=5", *words)
    assert done.code == 0
    assert "random, episode 1: 5.00 in 5 steps, time" in done.out


def test_a_video_shows_all_players_side_by_side(townlet: Program, gym_runs: dict[str, Run], tmp_path: Path) -> None:
    run, path = gym_runs["ppo"], tmp_path / "x.mp4"
    words = ["--mode", "trained", "--mode", "random", "--video", str(path), "--episodes", "1", "--steps", "8"]
    done = townlet("play", run.name, *words, "--root", str(run.path.parent))
    assert done.code == 0
    facts = read_video(path)
    assert (facts.frames, facts.size) == (8 + 1 + 50, (1200, 400))
    assert facts.seconds == pytest.approx(facts.frames / 50, abs=0.05)
    assert f"{facts.frames} frames" in done.out


def test_human_plays_at_a_terminal() -> None:
    arguments = ["play", "CartPole-v1", "--mode", "human", "--episodes", "1"]
    code, seen = at_a_terminal(arguments, ["x", "right", "1", "q"], columns=80)
    assert code == 0
    assert "'x' does nothing here" in seen
    assert "▀" in seen
    assert "step 1  return 1.00  left" in seen
    assert "no episode ended" in seen


def test_play_at_a_terminal_ends_after_the_given_episodes() -> None:
    arguments = ["play", "CartPole-v1", "gym.max_episode_steps=2", "--mode", "human", "--episodes", "1"]
    code, seen = at_a_terminal(arguments, ["1", "2", "x"], columns=80)
    assert code == 0
    assert "after 2 steps · any key: quit" in seen


def test_steps_are_rejected_for_human_mode() -> None:
    code, seen = at_a_terminal(["play", "CartPole-v1", "--mode", "human", "--steps", "5"], [], columns=80)
    assert code == 2
    assert "--steps does not apply" in seen


def test_step_option_waits_for_a_key() -> None:
    code, seen = at_a_terminal(["play", "FrozenLake-v1", "--step"], [" ", " ", "q"], columns=80)
    assert code == 0
    assert "any key: step" in seen
    assert "step 2" in seen
    assert "step 3" not in seen


def test_action_names_map_to_arrow_keys() -> None:
    lake = GymKeys(cast(RenderedGym, None), ("left", "down", "right", "up")).keys
    assert {key: lake[key] for key in ("left", "down", "right", "up", "1", "4")} == {
        "left": 0, "down": 1, "right": 2, "up": 3, "1": 0, "4": 3,
    }  # fmt: skip
    lander = GymKeys(cast(RenderedGym, None), ("nothing", "left engine", "main engine", "right engine")).keys
    assert [lander[key] for key in (".", "left", " ", "right")] == [0, 1, 2, 3]
    taxi = GymKeys(cast(RenderedGym, None), ("south", "north", "east", "west", "pick up", "drop off")).keys
    assert [taxi[key] for key in ("down", "up", "right", "left", "5", "6")] == [0, 1, 2, 3, 4, 5]


def test_half_blocks_fit_the_given_size() -> None:
    picture = np.zeros((40, 80, 3), np.uint8)
    picture[:20] = (255, 0, 0)
    text = half_block_text(picture, 20, 50)
    lines = text.splitlines()
    assert len(lines) == 5
    assert all(line.count("▀") == 20 for line in lines)
    assert "38;2;255;0;0" in lines[0]
    assert "38;2;0;0;0" in lines[-1]


def test_a_window_shows_every_step(gym_runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch, townlet: Program) -> None:
    """With SDL's dummy video driver."""
    import pygame

    monkeypatch.setenv("DISPLAY", ":stand-in")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    run, shown = gym_runs["ppo"], []
    monkeypatch.setattr(pygame.display, "flip", lambda flip=pygame.display.flip: shown.append(flip()))
    words = ["--window", "--episodes", "1", "--steps", "5", "--speed", "100", "--root", str(run.path.parent)]
    done = townlet("play", run.name, *words)
    assert done.code == 0, done.err
    assert 1 < len(shown) <= 6
