"""Publish a run: a folder with model card, results, weights and everything needed to play it.

The folder is a run with one checkpoint, which holds only the policy: it can be played, evaluated and exported, but not
resumed.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from townlet.errors import SourceLocation, TownletError
from townlet.runs import checkpoint, disk, provenance, report
from townlet.runs.folder import Run
from townlet.runs.videos import record_video, require_encoder
from townlet.sharing.export import export
from townlet.sharing.model_card import DEFAULT_LICENSE, LIBRARY, ModelCard
from townlet.tasks.comparison import Comparison
from townlet.train.checkpointer import training_state
from townlet.train.policies import TrainedPolicy
from townlet.train.training import policy_state

CURVE: Final = "curve.png"
VIDEO: Final = "replay.mp4"  # the name that the Hub displays on a model card
RESULTS: Final = "results.json"
POLICY: Final = "policy.safetensors"
CODE_FOLDER: Final = "code"  # the user's wrappers and agents
MAX_VIDEO_STEPS: Final = 1000
RUN_FILES: Final = ("recipe.yaml", "resolved.yaml", "meta.json", "worlds", "checkpoints")
PRIVATE_INFO: Final = ("files", "metrics", "metrics_digest", "recipe", "resumed_with")  # not published
# The folders of an absolute path.
ABSOLUTE_FOLDERS: Final = re.compile(r"""(?<![\w:/.~<-])~?/(?:[^\s/"'`:,()\[\]{}<>#]+/)+(?=[\w.])""")
# Names of everything that is written to the folder.
PUBLISHED_FILES: Final = frozenset(("README.md", CURVE, VIDEO, RESULTS, POLICY, CODE_FOLDER, *RUN_FILES))


def publish(
    trained: TrainedPolicy, folder: Path, *, episodes: int, seed: int, license: str = DEFAULT_LICENSE
) -> ModelCard:
    """Evaluate the agent and write the folder; returns the card.

    An earlier publication in the folder is replaced only once everything is written.
    """
    target = folder.resolve()
    _require_free(folder, trained.run)
    comparison = evaluate(trained, episodes, seed)
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        disk.make_folder(fresh)
        card = _fill(fresh, trained, comparison, episodes, seed, license)
        _replace(fresh, target)
        disk.sync_folder(target.parent)
    except OSError as error:
        raise disk.describe_error(error, f"cannot write {folder}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return card


def _fill(
    folder: Path, trained: TrainedPolicy, comparison: Comparison, episodes: int, seed: int, license: str
) -> ModelCard:
    _copy_run(trained, folder)
    export(trained, "safetensors", folder / POLICY)
    options = {"episodes": episodes, "seed": seed, "greedy": trained.use_greedy()}
    disk.replace_file(folder / RESULTS, json.dumps(options | dict(comparison.metrics()), indent=2).encode() + b"\n")
    with suppress(TownletError):  # a run without metrics, such as a published one, has no curve
        if (drawn := report.learning_curve_png(trained.run)) is not None:
            disk.replace_file(folder / CURVE, drawn)
    video_error = _record(trained, folder / VIDEO)
    files = {name: (folder / name).exists() for name in (CURVE, VIDEO, POLICY, RESULTS, "resolved.yaml")}
    written = [name for name, exists in files.items() if exists]
    card = ModelCard(trained, comparison, written, seed, video_error, license)
    disk.replace_file(folder / "README.md", strip_folders(card.text(), trained).encode())
    _write_meta(trained, folder)
    return card


def _replace(fresh: Path, target: Path) -> None:
    """Replace an earlier folder; files that were not published, such as those of a repository, stay."""
    if not target.exists():
        os.replace(fresh, target)
        return
    old = fresh.with_name(f"{fresh.name}.old")
    os.replace(target, old)
    try:
        os.replace(fresh, target)
    except OSError:
        os.replace(old, target)
        raise
    for other in old.iterdir():
        if other.name not in PUBLISHED_FILES:
            os.replace(other, target / other.name)
    shutil.rmtree(old, ignore_errors=True)


def evaluate(trained: TrainedPolicy, episodes: int, seed: int) -> Comparison:
    """Evaluate the agent and its baselines like the run's own evaluations: same environment, same action selection."""
    greedy = trained.use_greedy()
    if trained.loaded.recipe.gym is None:
        from townlet.tasks.comparison import compare_town
        from townlet.tasks.experiment import evaluation_world

        return compare_town(trained.policy, evaluation_world(trained.loaded, ()), episodes, seed, greedy=greedy)
    from townlet.tasks.gym import GymTask

    assert isinstance(trained.loaded.task, GymTask)
    return trained.loaded.task.compare(trained.policy, episodes, seed, greedy=greedy)


def _require_free(folder: Path, run: Run) -> None:
    """Raise TownletError for a file, for the folder of the run itself, and for a folder with other content."""
    if not folder.exists():
        return
    if folder.resolve() == run.path.resolve():
        raise TownletError(f"{folder} is the run to publish", "name another folder")
    card = folder / "README.md"
    ours = card.is_file() and f"library_name: {LIBRARY}" in card.read_text(encoding="utf-8", errors="replace")
    if not folder.is_dir():
        raise TownletError(f"{folder} is not a folder", "name a folder")
    if any(folder.iterdir()) and not ours:
        raise TownletError(f"{folder} contains other files", "name a new folder, or one that was published before")


def _copy_run(trained: TrainedPolicy, folder: Path) -> None:
    """Copy the run's recipe and worlds, and one checkpoint with the policy."""
    run, new = trained.run, Run(folder)
    recipe_text = run.recipe_file.read_text(encoding="utf-8")
    disk.replace_file(folder / run.recipe_file.name, strip_folders(recipe_text, trained).encode())
    resolved = run.resolved_file.read_text(encoding="utf-8")
    for index, file in enumerate(trained.loaded.recipe.user_files):
        copied = Path(CODE_FOLDER) / f"{index}-{Path(file).name}"
        (folder / CODE_FOLDER).mkdir(exist_ok=True)
        disk.replace_file(folder / copied, Path(file).read_bytes())
        resolved = resolved.replace(file, str(copied))  # relative to the folder
    disk.replace_file(folder / run.resolved_file.name, strip_folders(resolved, trained).encode())
    if run.worlds.is_dir():
        shutil.copytree(run.worlds, new.worlds)
    state, info = training_state(trained.checkpoint)
    new.checkpoints.mkdir()
    public_info = {name: value for name, value in info.items() if name not in PRIVATE_INFO} | {"published": True}
    saved = {"training": policy_state(state)}
    checkpoint.save(new.checkpoints, checkpoint.folder_name(trained.env_steps), saved, public_info)


def _write_meta(trained: TrainedPolicy, folder: Path) -> None:
    new = Run(folder)
    text = strip_folders(json.dumps(trained.run.meta() | {"command": None, "wandb": None, "published": True}), trained)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "README.md"]
    names = [str(path.relative_to(folder)) for path in files if not path.is_relative_to(new.checkpoints)]
    recipe = provenance.recipe_hash(provenance.read_settings(new))
    new.write_meta(json.loads(text) | {"recipe_hash": recipe, "files": provenance.checksums(folder, names)})


def strip_folders(text: str, trained: TrainedPolicy) -> str:
    """A text in which absolute paths are reduced to file names, so that it reveals nothing about this machine."""
    recipe, run = trained.loaded.recipe, trained.run.path.absolute()
    files = [Path(name) for name in (recipe.world, *recipe.user_files) if name and Path(name).is_absolute()]
    folders = {run, run.parent, Path.cwd(), Path.home(), *(file.parent for file in files)}
    for folder in sorted(map(str, folders), key=len, reverse=True):  # they may contain spaces
        if folder != "/":
            text = text.replace(f"{folder}/", "")
    return ABSOLUTE_FOLDERS.sub("", text)


def _record(trained: TrainedPolicy, path: Path) -> str:
    """Record a video of an episode; returns "", or why that is impossible."""
    try:
        require_encoder()
        env = trained.loaded.task.render(trained.policy(), trained.loaded.recipe)
    except TownletError as error:
        return str(error)
    record_video([env], path, episodes=1, steps=MAX_VIDEO_STEPS)
    env.close()
    return ""


def require_hub() -> None:
    """Raise TownletError if huggingface-hub is not installed or not logged in."""
    if find_spec("huggingface_hub") is None:
        raise TownletError("the Hub needs huggingface-hub, which is not installed", "pip install 'townlet[hub]'")
    from huggingface_hub import get_token

    if get_token() is None:
        raise TownletError("you are not logged in to the Hub", "log in once with `hf auth login`, or set HF_TOKEN")


def upload(folder: Path, name: str) -> str:
    """Upload a published folder to the Hugging Face Hub as user/name; returns its URL."""
    require_hub()
    from httpx2 import HTTPError  # the HTTP library of huggingface_hub
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    hub, where = HfApi(), SourceLocation(f"hub:{name}")
    try:
        url = hub.create_repo(name, exist_ok=True)
        hub.upload_folder(repo_id=name, folder_path=folder, commit_message="An agent trained with Townlet")
    except (HfHubHTTPError, ValueError) as error:
        message = str(error).splitlines()[0]
        raise TownletError(f"the Hub refused it: {message}", "check the name and the token", where) from None
    except (HTTPError, OSError) as error:
        fix = "check the network, or publish to a folder"
        raise TownletError(f"the Hub cannot be reached: {error}", fix, where) from None
    return str(url)
