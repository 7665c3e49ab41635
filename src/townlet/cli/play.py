"""`townlet play`: watch players in a town or an environment, or play yourself; ends with what came of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, Protocol

import typer

from townlet.cli.console import err, out
from townlet.cli.options import (
    ROOT,
    AllowCode,
    Checkpoint,
    CheckpointChoice,
    Root,
    Sample,
    WorldChanges,
    find_run,
    trained_policy,
)
from townlet.cli.play_screen import KeyBindings, Keyboard, PlayerView, play_by_hand, print_frames, watch
from townlet.errors import SourceLocation, TownletError

if TYPE_CHECKING:
    from rich.console import Console

    from townlet.tasks.experiment import LoadedExperiment
    from townlet.town.world.tables import World
    from townlet.train.policies import TrainedPolicy

FILMED: Final = 10_000  # steps after which an episode in a video is cut


class PlayMode(StrEnum):
    """Who plays."""

    TRAINED = "trained"
    RANDOM = "random"
    PLANNER = "planner"
    HUMAN = "human"


def play(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WORLD|RUN|ENV",
            help="A shipped world or a YAML file; a run (name, path, latest); the newest run of a recipe ENV:VARIANT; "
            "or the id of a Gymnasium environment.",
        ),
    ] = "town",
    overrides: WorldChanges = None,
    mode: Annotated[
        list[PlayMode] | None,
        typer.Option(
            metavar="trained|random|planner|human",
            help="Who plays; may be given again. By default who was trained, beside a random agent in towns.",
        ),
    ] = None,
    window: Annotated[bool, typer.Option("--window", help="Open a window instead of using the terminal.")] = False,
    video: Annotated[Path | None, typer.Option(metavar="FILE.mp4", help="Write a video and show nothing.")] = None,
    by_step: Annotated[bool, typer.Option("--step", help="Wait for a key before every step.")] = False,
    sample: Sample = None,
    speed: Annotated[float | None, typer.Option(min=0.1, max=1000, help="Steps shown in a second.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps to show; in towns 500 by default.")] = None,
    episodes: Annotated[int | None, typer.Option(min=1, help="Episodes to show; outside towns 3 by default.")] = None,
    lives: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Lives behind each line of a town's table, 200 by default."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another number gives other episodes.")] = 0,
    which: Checkpoint = CheckpointChoice.BEST,
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Watch agents in a town or in any environment, or play yourself.

    Players stand side by side; at the end you read what each achieved.
    """
    console = out()
    asked = list(dict.fromkeys(str(one) for one in mode or ()))
    _check(asked, console.is_terminal, by_step, window, video, steps)
    with ExitStack() as shows:
        with err().status("preparing"):
            wanted = PlayOptions(tuple(overrides or ()), asked, which.value, seed, lives, sample)
            place = find_target(what, root, wanted)
            modes = asked or list(place.usual)
            if odd := [one for one in modes if one not in place.modes]:
                raise TownletError(f"there is no {odd[0]} in {what}", f"known there: {', '.join(place.modes)}")
            if sample is not None and PlayMode.TRAINED not in modes:
                option = "--sample" if sample else "--greedy"
                what_for = f"{option} is for a trained agent, and none plays here"
                raise TownletError(what_for, "leave it out, or name a run")
            drawn = "picture" if window or video else "terminal" if console.is_terminal else "pipe"
            seats = []
            for one in modes:
                seats.append(place.seat(one, drawn))
                shows.callback(seats[-1].show.close)
        most = episodes if episodes or steps else place.episodes
        for seat in seats:
            seat.most = most
        pace, until = speed or place.speed, steps or (None if episodes else place.steps)
        if video is not None:
            _film(seats, video, most or 1, steps or place.steps or FILMED, console)
        elif drawn == "pipe":
            print_frames(seats, console, until)
        else:
            _show(place, seats, what if window else None, console, pace, until, by_step)
    place.finish(seats, modes, console)


def _check(
    modes: Sequence[str], terminal: bool, by_step: bool, window: bool, video: Path | None, steps: int | None
) -> None:
    """Refuse what cannot be done here."""
    keys = window or (terminal and Keyboard.available())
    if PlayMode.HUMAN in modes and (not keys or video):
        raise TownletError("--mode human needs a terminal with a keyboard", "use --mode random here")
    if PlayMode.HUMAN in modes and steps:
        raise TownletError("--steps: whoever plays by hand plays until they leave", "leave it out, or use --episodes")
    if by_step and (not keys or video):
        raise TownletError("--step needs a terminal with a keyboard, or --window", "leave it out here")


def _show(
    place: PlayTarget,
    seats: Sequence[PlayerView],
    title: str | None,
    console: Console,
    speed: float,
    steps: int | None,
    by_step: bool,
) -> None:
    """On the terminal, or in a window of that title."""
    from townlet.cli.play_screen import TerminalDisplay, WindowDisplay

    yours = next((seat for seat in seats if seat.name == "you"), None)
    hands = place.hands(yours) if yours else None
    with TerminalDisplay(console) if title is None else WindowDisplay(f"Townlet · {title}") as screen:
        if yours and hands:
            play_by_hand(seats, yours, hands, screen)
        else:
            watch(seats, screen, speed, steps, by_step)


def _film(seats: Sequence[PlayerView], path: Path, episodes: int, steps: int, console: Console) -> None:
    from townlet.runs.videos import record_video

    shows = [seat.show for seat in seats]
    with err().status("filming"):
        frames = record_video(shows, path, episodes=episodes, steps=steps, ended=lambda: _note(seats))
    seconds = frames / shows[0].rate
    console.print(f"Wrote {path}: {frames} pictures, {seconds:.0f} seconds.", markup=False, soft_wrap=True)


def _note(seats: Sequence[PlayerView]) -> None:
    for seat in seats:
        seat.note()


ENVIRONMENT: Final = re.compile(r"[\w./-]+-v\d+")  # what ids of Gymnasium look like


class PlayTarget(Protocol):
    """Where one plays: a town, or a Gymnasium environment."""

    @property
    def modes(self) -> Sequence[str]:
        """Who can play there."""

    @property
    def usual(self) -> Sequence[str]:
        """Who plays when nobody is named."""

    @property
    def steps(self) -> int | None:
        """Steps to show when nobody says how many."""

    @property
    def episodes(self) -> int | None:
        """Episodes to show when nobody says how many."""

    @property
    def speed(self) -> float:
        """Steps in a second when nobody says how many."""

    def seat(self, mode: str, drawn: str) -> PlayerView:
        """Who plays in that mode, `drawn` as a picture, for a terminal or for a pipe."""

    def hands(self, seat: PlayerView) -> KeyBindings:
        """The keys of a person."""

    def finish(self, seats: Sequence[PlayerView], modes: Sequence[str], console: Console) -> None:
        """Say what came of it."""


@dataclass(frozen=True)
class PlayOptions:
    """What somebody asked for beside the place."""

    changes: Sequence[str]
    modes: Sequence[str]  # none where nobody is named
    which: Literal["best", "last"]
    seed: int
    lives: int | None  # None where nobody says
    sample: bool | None  # None for what the recipe does

    @property
    def untrained(self) -> bool:
        """Whether no run is needed."""
        return bool(self.modes) and "trained" not in self.modes


def find_target(what: str, root: Path, wanted: PlayOptions) -> PlayTarget:
    """The place behind a word: a world, a run, a recipe or the id of an environment."""
    if ENVIRONMENT.fullmatch(what) and not Path(what).exists() and not (root / what).exists():
        return _environment(what, wanted)
    try:
        run = find_run(what, root)
    except TownletError:
        if ":" not in what or not wanted.untrained:
            raise
        from townlet.tasks.experiment import load_experiment

        return _of_recipe(load_experiment(what, wanted.changes), None, wanted)
    if run is not None:
        trained = trained_policy(run, wanted.which)
        return _of_recipe(trained.loaded, trained, wanted)
    from townlet.town.world.load import load as load_world

    _require_run(what, wanted)
    return _town(load_world(what, wanted.changes), None, wanted)


def _of_recipe(loaded: LoadedExperiment, trained: TrainedPolicy | None, wanted: PlayOptions) -> PlayTarget:
    """Where a recipe measures its agents."""
    greedy = True
    if trained:
        from townlet.tasks.eval_tables import acts_greedily, require_chances

        greedy = acts_greedily(trained, wanted.sample)
        require_chances(trained, greedy)
    if loaded.recipe.gym is None:
        from townlet.tasks.town_eval import world_for
        from townlet.train.policies import require_interface

        world = world_for(loaded, wanted.changes if trained else ())
        if trained:
            require_interface(trained, world)
        return _town(world, trained, wanted, greedy)
    from townlet.cli.play_targets import GymTarget
    from townlet.tasks.gym import GymTask

    if trained and wanted.changes:
        what = f"{wanted.changes[0]}: {loaded.recipe.env} is not a town"
        raise TownletError(what, "leave it out; an agent plays in the environment it was trained in")
    assert isinstance(loaded.task, GymTask)
    _refuse_lives(loaded.recipe.env, wanted)
    return GymTarget(loaded.task, trained, wanted.seed, greedy)


def _town(world: World, trained: TrainedPolicy | None, wanted: PlayOptions, greedy: bool = True) -> PlayTarget:
    from townlet.cli.play_targets import LIVES, TownTarget
    from townlet.rng import Streams

    return TownTarget(world, trained, Streams(wanted.seed), wanted.lives or LIVES, greedy)


def _environment(id: str, wanted: PlayOptions) -> PlayTarget:
    """An environment as it is, or changed by keys of `gym` in a recipe, as in kwargs.is_slippery=false."""
    from townlet.cli.play_targets import GymTarget
    from townlet.config.merge import apply_overrides
    from townlet.config.validate import validate_model
    from townlet.config.yaml import Node
    from townlet.gym.spec import EnvSpec
    from townlet.tasks.gym import GymTask

    _require_run(id, wanted)
    _refuse_lives(id, wanted)
    words = [change.removeprefix("gym.") for change in wanted.changes]  # as a recipe has them, too
    spec = validate_model(EnvSpec, apply_overrides(Node({}, SourceLocation("command line")), words))
    task = GymTask(id, spec)
    task.look()
    return GymTarget(task, None, wanted.seed)


def _refuse_lives(name: str, wanted: PlayOptions) -> None:
    if wanted.lives is not None:
        raise TownletError(f"--lives: {name} is not a town", "leave it out; --episodes says how many are shown")


def _require_run(what: str, wanted: PlayOptions) -> None:
    if "trained" in wanted.modes:
        kind = "an environment" if ENVIRONMENT.fullmatch(what) else "a world"
        train = f"`townlet train {what}`" if kind == "an environment" else "`townlet train town`"
        fix = f"name a run, as in `townlet play latest`, or train one: {train} (`townlet recipes` lists all recipes)"
        raise TownletError(f"--mode trained needs a run, and {what} is {kind}", fix)
