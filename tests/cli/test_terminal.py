"""Training in a terminal of 80 columns: no line wraps, commands stay on one line, the cursor is restored."""

from __future__ import annotations

import re
from pathlib import Path

from cli.terminal import at_a_terminal
from small import SMALL
from townlet.runs.folder import Run

TRAIN = ["train", "town-l0:dqn", *SMALL["town-l0:dqn"]]
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor


def lines(seen: str) -> list[str]:
    """The drawn lines, without colors and cursor movements."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen))


def test_progress_fits_80_columns_and_resume_command_is_one_line(tmp_path: Path) -> None:
    code, seen = at_a_terminal([*TRAIN, "--steps", "100000000", "--root", str(tmp_path)], ["\x03"], 80, b" left")
    assert code == 130
    (run,) = Run.list(tmp_path)
    shown = lines(seen)
    assert f"townlet train --resume {run.name} --root {tmp_path}" in shown
    drawn = [line for line in shown if str(tmp_path) not in line]
    assert max(map(len, drawn)) <= 80
    assert any(line.startswith("town-l0:dqn ━") for line in drawn)
    assert any("steps  random agent: " in line for line in drawn)
    assert seen.rfind(SHOW) > seen.rfind(HIDE)


def test_diverged_training_restores_the_cursor(tmp_path: Path) -> None:
    wrong = ["agent.lr=1e38", "agent.max_grad_norm=null", "agent.loss=mse", "agent.optimizer=sgd"]
    code, seen = at_a_terminal([*TRAIN, *wrong, "--root", str(tmp_path)], columns=80)
    assert code == 3
    assert seen.rfind(SHOW) > seen.rfind(HIDE)
    assert any("training diverged" in line for line in lines(seen)[-4:])
    assert "Traceback" not in seen
