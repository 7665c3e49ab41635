"""Commits of runs to be traced, and checks of what must be left of them after a power loss.

A workload calls `mark` when the product has acknowledged something, and `mark(begins=…)` where it is about to change
what was acknowledged before. What is written follows from its number, so that a check knows it without a copy.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import torch

from crash.training_process import (
    DQN,
    checkpoint_leaves,
    differing_leaves,
    metrics_digest,
    only_run,
    snapshot_leaves,
)
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.runs.metrics_store import MetricsStore, StorePosition
from townlet.runs.serialization import flatten
from townlet.tasks.experiment import load_experiment
from townlet.train.session import resume, start

Mark = Callable[..., None]
Acknowledged = Sequence[dict[str, Any]]
TEXTS: Final = {"recipe": "agent: dqn\n" * 100, "resolved": "agent: dqn  # default\n" * 200, "world": "size: 3\n" * 400}


def marked(acknowledged: Sequence[str]) -> Acknowledged:
    """The marks of a trace."""
    return [json.loads(text) for text in acknowledged]


def new_run(folder: Path) -> Run:
    return Run.create(
        folder / "home" / "runs", "town", "dqn", TEXTS["recipe"], TEXTS["resolved"], {"seed": 3},
        {"training": TEXTS["world"], "evaluation": TEXTS["world"]}, "# tune\n",
    )  # fmt: skip


def state_of(number: int) -> dict[str, Any]:
    """A state to be saved."""
    noise = torch.randn(700, generator=torch.Generator().manual_seed(number))
    return {"agent": {"weights": noise, "count": number}, "counters": torch.full((40,), number), "names": [number, "x"]}


class Checkpoints:
    """A new run; checkpoints, one moment saved twice, pruning, and a rewind."""

    @staticmethod
    def act(folder: Path, mark: Mark) -> None:
        run = new_run(folder)
        mark(run=run.name)
        for number in range(1, 17):
            step = {7: 600, 12: 700, 13: 1000}.get(number, 100 * number)
            if number == 12:
                mark(begins="rewind", step=600)
                checkpoint.rewind(run.checkpoints, 600)
            info = {"number": number, "score": float(number == 7)}
            checkpoint.save(run.checkpoints, checkpoint.folder_name(step), state_of(number), info)
            mark(step=step, number=number)
            if number % 2:
                checkpoint.prune(run.checkpoints, keep_every=500)

    @staticmethod
    def check(folder: Path, acknowledged: Acknowledged) -> None:
        runs = folder / "home" / "runs"
        for run in Run.list(runs):  # complete, whether acknowledged or not
            assert run.recipe_file.read_text() == TEXTS["recipe"]
            assert run.resolved_file.read_text() == TEXTS["resolved"]
            assert (run.worlds / "training.yaml").read_text() == TEXTS["world"]
            assert (run.worlds / "evaluation.yaml").read_text() == TEXTS["world"]
            assert run.meta()["seed"] == 3
        if not acknowledged:
            return
        run = Run.open(acknowledged[0]["run"], runs)
        whole, damaged = checkpoint.scan(run.checkpoints)
        assert not damaged, damaged
        for saved_one in whole:
            state, info = checkpoint.load(saved_one.path)
            assert not differing_leaves(flatten(state), flatten(state_of(info["number"])))
        least = 0
        for one in acknowledged[1:]:
            least = min(least, one["step"]) if "begins" in one else one["step"]
        assert not least or whole[-1].env_steps >= least, f"{least} is lost"
        saved = [one for one in acknowledged if one.get("step") == least and "number" in one]
        if saved and whole[-1].env_steps == least:
            assert whole[-1].info["number"] >= saved[-1]["number"], "an older state of the same moment"
        checkpoint.save(run.checkpoints, checkpoint.folder_name(10**6), state_of(99), {"number": 99})
        checkpoint.prune(run.checkpoints)
        newest = checkpoint.latest(run.checkpoints)
        assert newest is not None
        assert newest.info["number"] == 99


def final_bits(run: Path) -> dict[str, Any]:
    """Leaves of the last checkpoint and of the snapshots, and all metrics that do not depend on the clock."""
    leaves = checkpoint_leaves(run) | snapshot_leaves(run)
    tensors = {name: leaf for name, leaf in leaves.items() if isinstance(leaf, torch.Tensor)}
    return {
        "metrics": metrics_digest(run),
        "tensors": {name: sha256(leaf.numpy().tobytes()).hexdigest() for name, leaf in tensors.items()},
        "values": {name: leaf for name, leaf in leaves.items() if name not in tensors},
    }


def saved_steps(folder: Path) -> list[int]:
    """The env_steps of the checkpoints in a folder."""
    return [checkpoint.step_and_serial(path)[0] for path in checkpoint.paths(folder)]


class TrainedRun:
    """A small run, trained to its end. After a power loss it is resumed, and ends bit-identically."""

    STEPS = 400
    RECIPE = ("town:dqn", [*DQN, f"budget={{env_steps: {STEPS}}}"])

    @staticmethod
    def act(folder: Path, mark: Mark) -> None:
        def at(point: str) -> None:
            if point == "committed":
                run = only_run(folder / "runs")
                mark(checkpoints=saved_steps(run / "checkpoints"), snapshots=saved_steps(run / "snapshots"))

        checkpoint.on_point = at
        outcome = start(load_experiment(*TrainedRun.RECIPE), folder / "runs")
        checkpoint.on_point = lambda point: None
        mark(bits=final_bits(outcome.run.path))

    @staticmethod
    def check(folder: Path, acknowledged: Acknowledged, bits: dict[str, Any]) -> None:
        if not acknowledged:
            return
        run = Run(only_run(folder / "runs"))
        committed = [one for one in acknowledged if "checkpoints" in one][-1]
        assert max(saved_steps(run.checkpoints), default=-1) >= max(committed["checkpoints"], default=-1)
        assert {*saved_steps(run.snapshots)} >= {*committed["snapshots"]}  # snapshots are never pruned
        for path in checkpoint.paths(run.snapshots):
            checkpoint.verify(path)
        resume(run)
        assert final_bits(run.path) == bits


def rows_at(moment: int) -> list[dict[str, Any]]:
    """What is measured at a moment: a few rows, at every fourth of the first ones very many."""
    count = 400 if moment % 40 == 0 and moment < 200 else 5
    return [{"env_steps": moment, "updates": n, "name": "loss", "value": moment + n / 7} for n in range(count)]


class Metrics:
    """Commits of metrics: small and large ones, some while a reader is in the middle of a transaction, a rewind."""

    @staticmethod
    def act(folder: Path, mark: Mark) -> None:
        path, reader = folder / "metrics.db", None
        store = MetricsStore(path)

        def commit(moment: int) -> StorePosition:
            store.add("updates", rows_at(moment))
            store.add("episodes", {"env_steps": moment, "row": [0, 1], "length": moment, "meters": {"energy": 0.5}})
            if moment % 20 == 0:
                store.flush()
            position = store.sync()
            mark(moment=moment, position=position)
            return position

        for moment in range(10, 90, 10):
            if moment == 30:  # a page that is open in a browser
                reader = sqlite3.connect(path, isolation_level=None)
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM updates").fetchall()
            if moment == 70 and reader:
                reader.close()
            position = commit(moment)
        store.add("updates", rows_at(90))
        store.flush()
        mark(begins="rewind", moment=80)
        store.rewind(80, position)
        store.close()
        store = MetricsStore(path)
        store.rewind(80, position)
        for moment in range(100, 160, 10):
            commit(moment)
        store.close()

    @staticmethod
    def check(folder: Path, acknowledged: Acknowledged) -> None:
        saved = [one for one in acknowledged if "position" in one]
        if not saved:
            return
        moment, position = saved[-1]["moment"], StorePosition(*saved[-1]["position"])
        with MetricsStore(folder / "metrics.db") as store:
            store.rewind(moment, position)
            found = store.read("updates", ("env_steps", "updates", "value"))
            wanted = [row for one in saved for row in rows_at(one["moment"])]
            for name, values in found.items():
                assert values == [row[name] for row in wanted], name
            assert store.read("episodes", ("length",))["length"] == [one["moment"] for one in saved for _ in range(2)]
            store.add("updates", rows_at(200))
            store.sync()
            assert len(store.read("updates", ("env_steps",))["env_steps"]) == len(wanted) + len(rows_at(200))
