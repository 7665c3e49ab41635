"""Attacks on the files of a run: edited settings, foreign and renamed checkpoints, flipped bits in every file."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.training_process import checkpoint_leaves, differing_leaves
from metrics_digest import content_digest
from townlet.errors import TownletError
from townlet.runs import checkpoint, checkpoint_files
from townlet.runs.checkpoint_files import MANIFEST
from townlet.runs.folder import Run
from townlet.runs.metrics_reader import MetricsReader, write_csv
from townlet.runs.serialization import flatten
from townlet.runs.verify import reseal, verify
from townlet.sharing.publish import publish
from townlet.tasks.experiment import load_experiment
from townlet.train.policies import load_policy
from townlet.train.session import resume, start
from train.tiny import DQN, tiny

PAUSED, LATER = 600, 700


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run stopped in the middle, with a report; copy it before use."""
    run = start(tiny("town:dqn", "metrics.tensorboard=true"), tmp_path_factory.mktemp("sealed"), pause_at=PAUSED).run
    from townlet.runs.report import write_report

    write_report(run)
    return run


@pytest.fixture
def run(paused: Run, tmp_path: Path) -> Run:
    """A private copy."""
    shutil.copytree(paused.path, tmp_path / paused.name)
    return Run(tmp_path / paused.name)


def problems(run: Run) -> dict[str, str]:
    return {item.name: item.text for item in verify(run).items if item.state in ("damaged", "missing")}


def newest(run: Run) -> checkpoint.Checkpoint:
    found = checkpoint.latest(run.checkpoints)
    assert found is not None
    return found


def test_unmodified_run_is_intact(run: Run) -> None:
    assert problems(run) == {}
    assert verify(run).usable == ["Resume, play and eval work from step 600."]


def test_a_run_with_an_edited_gamma_is_not_resumed(run: Run) -> None:
    text = run.resolved_file.read_text()
    assert "gamma: 0.99" in text
    run.resolved_file.write_text(text.replace("gamma: 0.99", "gamma: 0.9"))
    with pytest.raises(TownletError, match=r"agent\.gamma is 0\.9 and was 0\.99.*override.*--resume"):
        resume(run, pause_at=LATER)
    assert "agent.gamma is 0.9 and was 0.99" in problems(run)["resolved.yaml"]
    reseal(run)  # meta.json and its list of files are accepted as they are, and the checkpoint still refuses
    with pytest.raises(TownletError, match=r"agent\.gamma is 0\.9 and was 0\.99"):
        resume(run, pause_at=LATER)


def test_other_comments_in_resolved_yaml_are_reported_and_do_no_harm(run: Run) -> None:
    run.resolved_file.write_text("# mine\n" + run.resolved_file.read_text())
    assert "only comments" in problems(run)["resolved.yaml"]
    assert resume(run, pause_at=LATER).ending.why


def test_an_edited_recipe_of_a_run_without_a_checkpoint_is_not_restarted(run: Run) -> None:
    shutil.rmtree(run.checkpoints)
    run.resolved_file.write_text(run.resolved_file.read_text().replace("gamma: 0.99", "gamma: 0.9"))
    with pytest.raises(TownletError, match=r"resolved\.yaml was changed"):
        resume(run, pause_at=LATER)


def test_override_on_resume_becomes_part_of_the_recipe(run: Run) -> None:
    before = newest(run).info["recipe_hash"]
    resume(run, ["agent.lr=0.002"], pause_at=LATER)
    after = newest(run)
    assert run.meta()["resumed_with"] == after.info["resumed_with"] == ["agent.lr=0.002"]
    assert after.info["recipe_hash"] != before
    assert problems(run) == {}
    resume(run, pause_at=LATER + 100)  # with the override, which need not be repeated
    run.update_meta(resumed_with=[])
    with pytest.raises(TownletError, match=r"was resumed with agent\.lr=0\.002, but meta\.json does not record it"):
        resume(run)


def test_an_edited_meta_json_is_refused(run: Run) -> None:
    text = run.meta_file.read_text()
    run.meta_file.write_text(text.replace('"seed": 0', '"seed": 1'))
    for use in (resume, load_policy):
        with pytest.raises(TownletError, match=r"does not match its own checksum.*runs verify .* --reseal"):
            use(run)
    assert "checksum" in problems(run)["meta.json"]
    reseal(run)
    assert problems(run) == {}
    assert run.meta()["seed"] == 1


def test_a_checkpoint_of_another_run_is_not_resumed(run: Run, tmp_path: Path) -> None:
    other = start(tiny("town:dqn", "metrics.tensorboard=true"), tmp_path / "other", pause_at=PAUSED).run
    shutil.rmtree(newest(run).path)
    shutil.copytree(newest(other).path, run.checkpoints / newest(other).name)
    with pytest.raises(TownletError, match="belongs to another run"):
        resume(run)
    assert "belongs to another run" in problems(run)[f"checkpoints/{newest(run).name}"]
    load_policy(run)  # allowed, as for a run that was assembled by hand


def test_an_older_checkpoint_renamed_to_a_later_step_is_refused(run: Run) -> None:
    older = newest(run)
    renamed = older.path.with_name(checkpoint.folder_name(PAUSED + 400))
    older.path.rename(renamed)
    for use in (resume, load_policy, lambda run: checkpoint.verify(renamed)):
        with pytest.raises(TownletError, match=f"was renamed: it was saved at step {PAUSED}"):
            use(run)
    assert "was renamed" in problems(run)[f"checkpoints/{renamed.name}"]


@pytest.mark.parametrize("key", ["run_id", "recipe_hash", "env_steps", "metrics_digest"])
def test_checkpoint_without_the_identity_of_its_run_is_not_resumed(key: str, run: Run) -> None:
    path = newest(run).path / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["info"][key]
    path.write_text(json.dumps(manifest))
    (path.parent / "manifest.sha256").write_bytes(checkpoint_files._seal(path.read_bytes()))
    with pytest.raises(TownletError, match=f"has no {key}: it was written by an older release.*init_from"):
        resume(run)


def test_an_override_that_is_killed_before_its_first_checkpoint_is_kept(run: Run) -> None:
    """meta.json records the override then, and the last checkpoint does not yet."""
    run.update_meta(resumed_with=["agent.lr=0.002"])
    resume(run, pause_at=LATER)
    assert newest(run).info["resumed_with"] == ["agent.lr=0.002"]


def test_a_published_agent_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    home = tmp_path / "home of a person"
    home.mkdir()
    (home / "my-town.yaml").write_text("extends: town-l0\nmax_steps: 30\n")
    words = [word for word in DQN if not word.startswith("change")]
    loaded = load_experiment(f"{home / 'my-town.yaml'}:dqn", [*words, "budget.env_steps=400"])
    run = start(loaded, home / "runs").run
    assert str(home) in run.resolved_file.read_text()
    publish(load_policy(run), tmp_path / "published", episodes=1, seed=0)
    for file in (path for path in (tmp_path / "published").rglob("*") if path.is_file()):
        assert str(tmp_path).encode() not in file.read_bytes(), file.name
        assert b"home of a person" not in file.read_bytes(), file.name
    published = Run(tmp_path / "published")
    assert problems(published) == {}
    assert load_policy(published).loaded.worlds.training.name == "my-town"
    (published.path / "results.json").write_text("{}")
    assert list(problems(published)) == ["results.json"]


def flip(path: Path, rng: random.Random) -> Callable[[], None]:
    """Flip one bit of a file; returns a function that restores it."""
    before = path.read_bytes()
    place, bit = rng.randrange(len(before)), rng.randrange(8)
    path.write_bytes(before[:place] + bytes([before[place] ^ 1 << bit]) + before[place + 1 :])
    return lambda: void(path.write_bytes(before))


def void(_: object) -> None:
    """Nothing."""


def figures(run: Run) -> str:
    """All figures that commands report."""
    with MetricsReader(run.metrics_file) as store:
        return content_digest(store) + json.dumps(run.meta())


def harmless(run: Run, intact: Run, resumed: dict[str, object], rng: random.Random, everything: bool) -> None:
    """No metric and no weight has changed; weights are slow to check, so only some are."""
    assert figures(run) == figures(intact)
    assert not differing_leaves(
        flatten(checkpoint.load(newest(run).path)[0]), flatten(checkpoint.load(newest(intact).path)[0])
    )
    if everything:
        copy = Run(run.path.with_name("resumed"))
        shutil.copytree(run.path, copy.path)
        resume(copy, pause_at=LATER)
        assert not differing_leaves(checkpoint_leaves(copy.path), resumed)
        shutil.rmtree(copy.path)


# 1e-05 is 1E-05 in meta.json; in metrics.db much is free space; metrics.csv is a copy of it, which nothing reads.
FREE = re.compile(r"lock|log\.txt|tensorboard/.*|tune\.yaml|live\.feed|meta\.json|metrics\.db|metrics\.csv")


def flips(run: Run, paused: Run, count: int, resumes: int) -> dict[str, int]:
    """Flip bits one by one, evenly over all files; returns how many were reported and how many harmless."""
    rng, seen = random.Random(7), {"reported": 0, "harmless": 0}
    intact = Run(run.path.with_name("intact"))
    shutil.copytree(paused.path, intact.path)
    resume(intact, pause_at=LATER)
    resumed = checkpoint_leaves(intact.path)
    files = sorted(
        p for p in run.path.rglob("*") if p.is_file() and p.stat().st_size and p.parent.name != "tensorboard"
    )
    for number in range(count):
        path = files[number % len(files)]
        name, restore = str(path.relative_to(run.path)), flip(path, rng)
        try:
            if problems(run):
                seen["reported"] += 1
            else:
                assert FREE.fullmatch(name), f"a flipped bit in {name} was not noticed"
                seen["harmless"] += 1
                harmless(run, paused, resumed, rng, seen["harmless"] <= resumes and name != "tune.yaml")
        finally:
            restore()
    assert problems(run) == {}
    return seen


def test_flipped_bits_in_every_file_of_a_run_are_reported_or_harmless(run: Run, paused: Run) -> None:
    seen = flips(run, paused, 50, 1)
    assert seen["reported"] > 25
    assert seen["harmless"]


@pytest.mark.long(minutes=5)
def test_a_thousand_flipped_bits_are_reported_or_harmless(run: Run, paused: Run) -> None:
    seen = flips(run, paused, 1000, 25)
    assert seen["reported"] > 500


def test_metrics_csv_has_no_checksum_and_is_written_again_from_the_checked_metrics(run: Run, tmp_path: Path) -> None:
    text = run.csv_file.read_text()
    run.csv_file.write_text(text.replace("\n100,", "\n900,"))
    assert run.csv_file.read_text() != text
    (item,) = (item for item in verify(run).items if item.name == "metrics.csv")
    assert (item.state, "a copy of the metrics" in item.text) == ("unprotected", True)
    resume(run, pause_at=LATER)
    with MetricsReader(run.metrics_file) as metrics:
        write_csv(metrics, tmp_path / "expected.csv")
    assert run.csv_file.read_text() == (tmp_path / "expected.csv").read_text()


def test_a_run_whose_checkpoints_were_removed_does_not_restart_over_its_metrics(run: Run) -> None:
    shutil.rmtree(run.checkpoints)
    with MetricsReader(run.metrics_file) as metrics:
        before = content_digest(metrics)
    with pytest.raises(TownletError, match=r"checkpoints are missing.*600.*nothing was removed"):
        resume(run, pause_at=LATER)
    with MetricsReader(run.metrics_file) as metrics:
        assert content_digest(metrics) == before


def test_a_run_whose_last_checkpoint_became_a_link_does_not_resume_from_an_older_one(run: Run, tmp_path: Path) -> None:
    last = newest(run)
    last.path.rename(tmp_path / "elsewhere")
    last.path.symlink_to(tmp_path / "elsewhere")
    assert newest(run).env_steps < last.env_steps
    with MetricsReader(run.metrics_file) as metrics:
        before = content_digest(metrics)
    with pytest.raises(TownletError, match=f"{last.name} is a symbolic link"):
        resume(run, pause_at=LATER)
    with MetricsReader(run.metrics_file) as metrics:
        assert content_digest(metrics) == before
