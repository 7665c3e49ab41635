"""Several seeds in the Python API: collections of runs, and their plots."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

import townlet
import warm
from project.test_api import OWN_CLASS, Corridor
from small import PPO
from townlet.errors import TownletError
from townlet.runs.statistics import bootstrap_interval, iqm
from townlet.train.callbacks import RunProgress
from townlet.train.trained_runs import TrainedRuns

WORDS = [*PPO, "evaluation.every=256"]
# Without `if __name__ == "__main__"`: the processes of the seeds must not execute it again.
SCRIPT = f"""
import own_envs
import townlet

print("started")
runs = townlet.train(own_envs.Own, steps=256, seed=7, seeds=2, jobs=2, overrides={WORDS})
print(repr(runs), [run.meta()["env"] for run in runs])
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> TrainedRuns:
    return townlet.train(Corridor, seed=5, seeds=3, overrides=WORDS, root=tmp_path_factory.mktemp("runs"))


def test_seeds_give_runs_with_iqm_and_interval(runs: TrainedRuns) -> None:
    assert (len(runs), runs.seeds, runs[-1].finished) == (3, [5, 6, 7], True)
    scores = [float(run.evaluations()["score"][-1]) for run in runs]
    assert runs.scores.tolist() == scores
    assert runs.iqm == iqm(scores)
    assert runs.interval == bootstrap_interval(scores)
    assert repr(runs).startswith("<3 runs of Corridor:ppo, seeds 5, 6, 7: IQM of return")
    table = runs.evaluations()
    assert table["seed"].tolist() == [5, 5, 6, 6, 7, 7]
    assert table["env_steps"].tolist() == [256, 512] * 3
    assert table["score"][1::2].tolist() == scores
    assert {len(column) for column in runs.metrics().values()} == {sum(len(run.metrics()["loss"]) for run in runs)}


def test_run_without_evaluations_is_left_out_of_curve_and_interval(tmp_path: Path) -> None:
    def stop_one(progress: RunProgress) -> bool:
        return bool(progress.run.meta()["seed"] != 6)

    words = [*PPO, "evaluation.every=512", "metrics.every=64"]
    runs = townlet.train(Corridor, seed=5, seeds=3, overrides=words, root=tmp_path, callbacks=[stop_one])
    (line,) = runs.plot().axes[0].lines
    assert np.asarray(line.get_xdata()).tolist() == [512]
    assert line.get_label() == "Corridor:ppo: IQM of 2 of 3 seeds (band: 95% interval)"
    assert "IQM of return over 2 of 3 seeds" in repr(runs)


def test_slices_without_runs_are_shown_and_refused(runs: TrainedRuns) -> None:
    assert (repr(runs[3:]), runs[3:]._repr_html_()) == ("<no runs>", "<div>no runs</div>")
    with pytest.raises(TownletError, match="there are no runs to plot"):
        runs[3:].plot()


def test_ids_that_a_script_registers_are_known_to_parallel_processes(tmp_path: Path) -> None:
    """Also if the class is in a module; one of the script itself exists only there."""
    gym.register("Corridor-v0", entry_point="project.test_api:Corridor", kwargs={"reward": 2.0})
    make_local: Any = lambda: Corridor()  # noqa: E731
    gym.register("Local-v0", entry_point=make_local)
    try:
        runs = townlet.train("Corridor-v0", seeds=2, jobs=2, overrides=WORDS, root=tmp_path)
        assert {*runs.scores.tolist()} <= {0.0, 2.0}
        assert runs.failures == {}
        with pytest.raises(TownletError, match="'Local-v0' cannot be sent to other processes"):
            townlet.train("Local-v0", seeds=2, jobs=2, overrides=WORDS, root=tmp_path)
    finally:
        del gym.registry["Corridor-v0"], gym.registry["Local-v0"]


def test_runs_are_plotted_with_a_band(runs: TrainedRuns) -> None:
    def legend(figure: Any) -> list[str]:
        return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]

    band = "IQM of 3 seeds (band: 95% interval)"
    own = runs.plot()
    assert legend(own) == [f"Corridor:ppo: {band}"]
    steps, mean = own.axes[0].lines[0].get_data()
    assert np.asarray(steps).tolist() == [256, 512]
    assert np.asarray(mean)[-1] == pytest.approx(runs.iqm)
    assert len(own.axes[0].collections) == 1  # the band
    root, names = runs[0].path.parent, [run.name for run in runs]
    assert legend(townlet.plot(names, root)) == legend(own)  # runs of one experiment are found by their settings
    assert legend(townlet.plot(names[:1], root)) == ["Corridor:ppo seed 5"]
    labeled = townlet.plot({"all": runs, "one": runs[0]})
    assert legend(labeled) == [f"all: {band}", "one seed 5"]
    assert labeled._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(TownletError, match="no runs to plot"):
        townlet.plot([])


def test_notebook_shows_scores_and_curve_of_several_runs(runs: TrainedRuns) -> None:
    page = runs._repr_html_()
    assert page.count("<tr>") == 4
    assert "IQM of return" in page
    assert "<svg" in page


def test_script_without_a_guard_trains_its_class_in_parallel(tmp_path: Path) -> None:
    own = "from gymnasium.envs.classic_control import CartPoleEnv\n\n\n" + OWN_CLASS
    (tmp_path / "own_envs.py").write_text(own)
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py")]
    done = warm.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("started") == 1
    assert "<2 runs of Own:ppo, seeds 7, 8: IQM of return" in done.stdout
    assert "failed" not in done.stdout


class Fragile(Corridor):
    """Fails once, in the first run."""

    steps_left: ClassVar[int] = 100

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        Fragile.steps_left -= 1
        if Fragile.steps_left == 0:
            raise ZeroDivisionError("no more steps")
        return super().step(action)


def test_failed_seed_is_reported_and_the_others_are_returned(tmp_path: Path) -> None:
    seen: list[int] = []

    def stop_second(progress: RunProgress) -> bool:
        seen.append(progress.run.meta()["seed"])
        return seen[-1] != 1

    runs = townlet.train(Fragile, seeds=3, steps=512, callbacks=[stop_second], overrides=WORDS, root=tmp_path)
    assert (runs.seeds, [run.finished for run in runs]) == ([1, 2], [False, True])  # a callback stops one run only
    assert list(runs.failures) == [0]
    assert "seed 0 failed: " in repr(runs)
    assert "ZeroDivisionError: no more steps" in repr(runs)
    Fragile.steps_left = 100
    with pytest.raises(TownletError, match=r"no seed finished; seed 0: .*no more steps.*log\.txt"):
        townlet.train(Fragile, seeds=1, overrides=WORDS, root=tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": 0}, "seeds=0 is not a whole number of at least 1"),
        ({"jobs": 2}, "jobs=2 trains several seeds at a time, but there is only one; add seeds=5"),
        ({"seeds": 2, "jobs": 2, "callbacks": [print]}, "callbacks are not sent to other processes"),
        ({"seeds": 2, "jobs": 2}, "'lambda' cannot be sent to other processes, because it is not in a module"),
    ],
)
def test_mistakes_are_one_line(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TownletError, match=message) as caught:
        townlet.train(lambda: Corridor(), root=tmp_path, **settings)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
