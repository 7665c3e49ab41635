"""`townlet play`: watch agents in a town or a Gymnasium environment, or play it yourself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from townlet.cli import play_screen
from townlet.cli.console import echo, echo_err, err, out
from townlet.cli.options import ROOT, AllowCode, Checkpoint, Root, Sample, WorldOverrides, find_run, load_policy
from townlet.cli.play_screen import PlayerView
from townlet.cli.play_targets import GymTarget, PlayTarget, TownTarget
from townlet.errors import SourceLocation, TownletError

if TYPE_CHECKING:
    from townlet.tasks.experiment import LoadedExperiment
    from townlet.train.policies import TrainedPolicy, Which

MAX_VIDEO_STEPS: Final = 10_000  # per episode
ENV_ID: Final = re.compile(r"[\w./-]+-v\d+")


class PlayMode(StrEnum):
    """Kinds of players."""

    TRAINED = "trained"
    RANDOM = "random"
    PLANNER = "planner"
    HUMAN = "human"


def play(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WORLD|RUN|ENV",
            help="A shipped world or a YAML file; a run (name, prefix, path or latest); ENV:VARIANT for the newest run "
            "of a recipe; or a Gymnasium id.",
        ),
    ] = "town",
    overrides: WorldOverrides = None,
    mode: Annotated[
        list[PlayMode] | None,
        typer.Option(
            metavar="trained|random|planner|human",
            help="Who plays; repeatable. By default the trained agent, or a random one if there is none; in towns also "
            "a second player, for comparison.",
        ),
    ] = None,
    window: Annotated[bool, typer.Option("--window", help="Show a window instead of using the terminal.")] = False,
    video: Annotated[Path | None, typer.Option(metavar="FILE.mp4", help="Write a video; show nothing.")] = None,
    by_step: Annotated[bool, typer.Option("--step", help="Wait for a key before every step.")] = False,
    sample: Sample = None,
    speed: Annotated[float | None, typer.Option(min=0.1, max=1000, help="Steps per second.")] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after N steps (per episode with --video or a pipe). Default in towns: 500."),
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Episodes to show; 3 by default in Gymnasium environments.")
    ] = None,
    table_episodes: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Episodes per player for the survival table of a town; 200 by default."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episodes.")] = 0,
    which: Checkpoint = "best",
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Watch agents in a town or any environment, or play it yourself.

    Several players are shown side by side. A summary of their results follows.
    """
    console = out()
    requested = list(dict.fromkeys(str(one) for one in mode or ()))
    keyboard = (window or (console.is_terminal and play_screen.Keyboard.available())) and not video
    if PlayMode.HUMAN in requested and not keyboard:
        raise TownletError("--mode human needs a keyboard: a terminal or --window, and no --video", "use --mode random")
    if PlayMode.HUMAN in requested and steps:
        raise TownletError("--steps does not apply to --mode human", "drop it, or use --episodes")
    if by_step and not keyboard:
        raise TownletError("--step needs a keyboard: a terminal or --window, and no --video", "drop it here")
    with ExitStack() as stack:
        with err().status("loading"):
            options = PlayOptions(tuple(overrides or ()), requested, which, seed, table_episodes, sample)
            target = find_target(what, root, options)
            modes = requested or list(target.default_modes)
            if unknown := [name for name in modes if name not in target.modes]:
                raise TownletError(f"{what} has no player '{unknown[0]}'", f"available: {', '.join(target.modes)}")
            if sample is not None and PlayMode.TRAINED not in modes:
                option = "--sample" if sample else "--greedy"
                raise TownletError(f"{option} is for a trained agent, and none plays here", "drop it, or name a run")
            text_medium = "terminal" if console.is_terminal else "pipe"
            medium = "image" if window or video else text_medium
            max_episodes = episodes if episodes or steps else target.episodes
            players = []
            for name in modes:
                player = target.player_view(name, medium)
                player.max_episodes = max_episodes
                stack.callback(player.env.close)
                players.append(player)
        max_steps = steps or (None if episodes else target.steps)
        if video is not None:
            _record(players, video, max_episodes or 1, steps or target.steps or MAX_VIDEO_STEPS)
        elif medium == "pipe":
            play_screen.print_frames(players, max_steps)
        else:
            human = next((player for player in players if player.name == "you"), None)
            keys = target.key_bindings(human) if human else None
            display = play_screen.WindowDisplay(f"Townlet · {what}") if window else play_screen.TerminalDisplay(console)
            with display:
                if human and keys:
                    play_screen.play_by_hand(players, human, keys, display)
                else:
                    play_screen.watch(players, display, speed or target.speed, max_steps, by_step)
    target.print_summary(players, modes)


def _record(players: Sequence[PlayerView], path: Path, episodes: int, steps: int) -> None:
    from townlet.runs.videos import record_video

    def record_ends() -> None:
        for player in players:
            player.record_end()

    envs = [player.env for player in players]
    with err().status("recording"):
        frames = record_video(envs, path, episodes=episodes, steps=steps, on_end=record_ends)
    echo(f"Wrote {path}: {frames} frames, {frames / envs[0].fps:.0f} seconds.")


@dataclass(frozen=True)
class PlayOptions:
    """Options of `townlet play` from which the target is made."""

    overrides: Sequence[str]
    modes: Sequence[str]  # empty: the target's default
    which: Which
    seed: int
    table_episodes: int | None
    sample: bool | None  # None: as in the recipe's evaluations


def find_target(what: str, root: Path, options: PlayOptions) -> PlayTarget:
    """The world, run, recipe or environment with this name."""
    if ENV_ID.fullmatch(what) and not Path(what).exists() and not (root / what).exists():
        return _env_target(what, options)
    try:
        run = find_run(what, root)
    except TownletError:
        if ":" not in what or not options.modes or "trained" in options.modes:  # only a trained agent needs a run
            raise
        from townlet.tasks.experiment import load_experiment

        return _experiment_target(load_experiment(what, options.overrides), None, options)
    if run is not None:
        trained = load_policy(run, options.which)
        echo_err(f"{run.name}, {trained.label}, after {trained.env_steps:,} steps")
        return _experiment_target(trained.loaded, trained, options)
    from townlet.town.world.load import load as load_world

    _reject_trained(what, options)
    return TownTarget(load_world(what, options.overrides), None, options.seed, options.table_episodes)


def _experiment_target(experiment: LoadedExperiment, trained: TrainedPolicy | None, options: PlayOptions) -> PlayTarget:
    """The environment in which a recipe evaluates its agents."""
    greedy = True
    if trained:
        greedy = trained.use_greedy(options.sample)
        trained.require_probabilities(greedy)
    if experiment.recipe.gym is None:
        from townlet.tasks.experiment import evaluation_world
        from townlet.tasks.transfer import transfer_note

        world = evaluation_world(experiment, options.overrides if trained else ())
        if trained:
            trained = trained.in_world(world)
            if note := transfer_note(trained.unobserved, trained.missing):
                echo_err(f"The agent {note}: it was trained in {trained.world.name}.")
        return TownTarget(world, trained, options.seed, options.table_episodes, greedy)
    from townlet.tasks.gym import GymTask

    if trained and options.overrides:
        what = f"{options.overrides[0]}: {experiment.recipe.env} is not a town"
        raise TownletError(what, "drop it; the agent plays in the environment it was trained in")
    assert isinstance(experiment.task, GymTask)
    _reject_table_episodes(experiment.recipe.env, options)
    return GymTarget(experiment.task, trained, options.seed, greedy)


def _env_target(id: str, options: PlayOptions) -> GymTarget:
    """An environment by id, with overrides of keys under `gym`, such as kwargs.is_slippery=false."""
    from townlet.config.merge import apply_overrides
    from townlet.config.validate import validate_model
    from townlet.config.yaml import Node
    from townlet.gym.settings import GymSettings
    from townlet.tasks.gym import GymTask

    _reject_trained(id, options)
    _reject_table_episodes(id, options)
    overrides = [override.removeprefix("gym.") for override in options.overrides]  # recipes write gym.kwargs…
    settings = validate_model(GymSettings, apply_overrides(Node({}, SourceLocation("command line")), overrides))
    task = GymTask(id, settings)
    task.check()
    return GymTarget(task, None, options.seed)


def _reject_table_episodes(name: str, options: PlayOptions) -> None:
    if options.table_episodes is not None:
        raise TownletError(f"--table-episodes: {name} is not a town", "drop it; --episodes sets how many are shown")


def _reject_trained(what: str, options: PlayOptions) -> None:
    if "trained" in options.modes:
        kind, recipe = ("an environment", what) if ENV_ID.fullmatch(what) else ("a world", "town")
        fix = f"name a run, as in `townlet play latest`, or train one: `townlet train {recipe}`"
        raise TownletError(f"--mode trained needs a run, and {what} is {kind}", f"{fix} (see `townlet recipes`)")
