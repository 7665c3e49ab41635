"""A run for others: a folder with its card, its figures, its weights and all that is needed to play it.

The folder is a run itself, with one checkpoint that holds what acts and nothing else: it can be played, measured and
exported, but not gone on with.
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
from townlet.runs.videos import record_video
from townlet.sharing.export import export
from townlet.sharing.model_card import LIBRARY, ModelCard, user_files
from townlet.tasks.eval_tables import Measured, acts_greedily
from townlet.train.policies import TrainedPolicy
from townlet.train.weights import training_state

CURVE: Final = "curve.png"
VIDEO: Final = "replay.mp4"  # the name that the Hub shows beside a card
RESULTS: Final = "results.json"
POLICY: Final = "policy.safetensors"
CODE_FOLDER: Final = "code"  # files of wrappers of one's own
VIDEO_STEPS: Final = 1000  # of the film
RUN_FILES: Final = ("recipe.yaml", "resolved.yaml", "meta.json", "worlds", "checkpoints")
PRIVATE_INFO: Final = ("files", "metrics", "metrics_digest", "recipe", "resumed_with")  # of a checkpoint's info
ABSOLUTE_FOLDERS: Final = re.compile(
    r"""(?<![\w:/.~<-])~?/(?:[^\s/"'`:,()\[\]{}<>#]+/)+(?=[\w.])"""
)  # folders of a path
PUBLISHED_FILES: Final = frozenset(
    ("README.md", CURVE, VIDEO, RESULTS, POLICY, CODE_FOLDER, *RUN_FILES)
)  # all that is ever written there


def publish(trained: TrainedPolicy, folder: Path, *, episodes: int, seed: int) -> ModelCard:
    """Write all of it into the folder, measured anew; gives the card.

    What was published there before stays whole until all of it is written.
    """
    place = folder.resolve()
    _require_room(folder, trained.run)
    found = evaluate(trained, episodes, seed)
    fresh = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        disk.make_folder(fresh)
        card = _fill(fresh, trained, found, episodes, seed)
        _swap(fresh, place)
        disk.sync_folder(place.parent)
    except OSError as error:
        raise disk.describe_error(error, f"cannot write {folder}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return card


def _fill(folder: Path, trained: TrainedPolicy, found: Measured, episodes: int, seed: int) -> ModelCard:
    """All files, in a folder that is empty."""
    _copy_run(trained, folder)
    export(trained, "safetensors", folder / POLICY)
    asked = {"episodes": episodes, "seed": seed, "greedy": acts_greedily(trained)}
    disk.replace_file(folder / RESULTS, json.dumps(asked | dict(found.figures()), indent=2).encode() + b"\n")
    with suppress(TownletError):  # a run whose metrics are gone, as one that was published before, has no curve
        if (drawn := report.learning_curve_png(trained.run)) is not None:
            disk.replace_file(folder / CURVE, drawn)
    unfilmed = _film(trained, folder / VIDEO)
    files = {name: (folder / name).exists() for name in (CURVE, VIDEO, POLICY, RESULTS, "resolved.yaml")}
    card = ModelCard(trained, found, [name for name, there in files.items() if there], unfilmed)
    disk.replace_file(folder / "README.md", strip_folders(card.text(), trained).encode())
    _write_meta(trained, folder)
    return card


def _swap(fresh: Path, place: Path) -> None:
    """Put a folder in the place of an earlier one; what others put there, as a repository's own files, stays."""
    if not place.exists():
        os.replace(fresh, place)
        return
    old = fresh.with_name(f"{fresh.name}.old")
    os.replace(place, old)
    try:
        os.replace(fresh, place)
    except OSError:
        os.replace(old, place)
        raise
    for other in old.iterdir():
        if other.name not in PUBLISHED_FILES:
            os.replace(other, place / other.name)
    shutil.rmtree(old, ignore_errors=True)


def evaluate(trained: TrainedPolicy, episodes: int, seed: int) -> Measured:
    """The agent beside its yardsticks, where the run itself was measured and as it was."""
    greedy = acts_greedily(trained)
    if trained.loaded.recipe.gym is None:
        from townlet.tasks import town_eval as towns

        return towns.measure(trained, towns.world_for(trained.loaded, ()), episodes, seed, greedy=greedy)
    from townlet.tasks import gym_eval as gyms
    from townlet.tasks.gym import GymTask

    assert isinstance(trained.loaded.task, GymTask)
    return gyms.measure(trained.loaded.task, trained, episodes, seed, greedy=greedy)


def _require_room(folder: Path, run: Run) -> None:
    """Refuse the folder that is read, and one in which other things lie."""
    if not folder.exists():
        return
    if folder.resolve() == run.path.resolve():
        raise TownletError(f"{folder} is the agent that is to be published", "name another folder")
    card = folder / "README.md"
    ours = card.is_file() and f"library_name: {LIBRARY}" in card.read_text(encoding="utf-8", errors="replace")
    if not folder.is_dir() or (any(folder.iterdir()) and not ours):
        raise TownletError(f"{folder} holds other things", "name a new folder, or one that was published before")


def _copy_run(trained: TrainedPolicy, folder: Path) -> None:
    """The run's own papers, and one checkpoint with the part that acts."""
    run, new = trained.run, Run(folder)
    asked = run.recipe_file.read_text(encoding="utf-8")
    disk.replace_file(folder / run.recipe_file.name, strip_folders(asked, trained).encode())
    settled = run.resolved_file.read_text(encoding="utf-8")
    for place, file in enumerate(user_files(trained)):
        own = Path(CODE_FOLDER) / f"{place}-{Path(file).name}"
        (folder / CODE_FOLDER).mkdir(exist_ok=True)
        disk.replace_file(folder / own, Path(file).read_bytes())
        settled = settled.replace(file, str(own))  # as seen from there
    disk.replace_file(folder / run.resolved_file.name, strip_folders(settled, trained).encode())
    if run.worlds.is_dir():
        shutil.copytree(run.worlds, new.worlds)
    state, info = training_state(trained.found)
    acting = {"agent": {"network": state["agent"]["network"]}, "env": {"stages": state["env"].get("stages", {})}}
    new.checkpoints.mkdir()
    slim = {name: value for name, value in info.items() if name not in PRIVATE_INFO} | {"published": True}
    checkpoint.save(new.checkpoints, checkpoint.folder_name(trained.env_steps), {"training": acting}, slim)


def _write_meta(trained: TrainedPolicy, folder: Path) -> None:
    """What is known of the run, with the checksums of the files that were written."""
    new = Run(folder)
    text = strip_folders(json.dumps(trained.run.meta() | {"command": None, "published": True}), trained)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "README.md"]
    names = [str(path.relative_to(folder)) for path in files if not path.is_relative_to(new.checkpoints)]
    recipe = provenance.recipe_hash(provenance.read_settings(new))
    new.write_meta(json.loads(text) | {"recipe_hash": recipe, "files": provenance.checksums(folder, names)})


def strip_folders(text: str, trained: TrainedPolicy) -> str:
    """A text in which absolute paths are reduced to file names, so that it reveals nothing about this machine."""
    recipe, run = trained.loaded.recipe, trained.run.path.absolute()
    files = [Path(name) for name in (recipe.world, *user_files(trained)) if name and Path(name).is_absolute()]
    folders = {run, run.parent, Path.cwd(), Path.home(), *(file.parent for file in files)}
    for folder in sorted(map(str, folders), key=len, reverse=True):  # with spaces in them, too
        if folder != "/":
            text = text.replace(f"{folder}/", "")
    return ABSOLUTE_FOLDERS.sub("", text)


def _film(trained: TrainedPolicy, path: Path) -> str:
    """An episode, where pictures can be drawn and filmed; else why there is none."""
    if find_spec("imageio_ffmpeg") is None:
        return "imageio-ffmpeg is not installed: pip install 'townlet[video]'"
    try:
        show = trained.loaded.task.show(trained.policy(), trained.loaded.recipe)
    except TownletError as error:
        return error.diagnostics[0].what
    record_video([show], path, episodes=1, steps=VIDEO_STEPS)
    show.close()
    return ""


def require_hub() -> None:
    """Say in one line what keeps this program from the Hub."""
    if find_spec("huggingface_hub") is None:
        raise TownletError("the Hub needs huggingface-hub, which is not installed", "pip install 'townlet[hub]'")
    from huggingface_hub import get_token

    if get_token() is None:
        raise TownletError("the Hub does not know who you are", "log in once with `hf auth login`, or set HF_TOKEN")


def upload(folder: Path, name: str) -> str:
    """Send a published folder to the Hugging Face Hub as user/name; gives the address."""
    require_hub()
    from httpx2 import HTTPError  # what the Hub's library speaks through
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    hub, where = HfApi(), SourceLocation(f"hub:{name}")
    try:
        place = hub.create_repo(name, exist_ok=True)
        hub.upload_folder(repo_id=name, folder_path=folder, commit_message="An agent trained by Townlet")
    except (HfHubHTTPError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise TownletError(f"the Hub refused it: {said}", "look at the name and the token", where) from None
    except (HTTPError, OSError) as error:
        fix = "look at the network, or write to a folder"
        raise TownletError(f"the Hub cannot be reached: {error}", fix, where) from None
    return str(place)
