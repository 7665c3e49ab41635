"""`townlet play`: watch players live in a town, or live there yourself; ends with how long each lives."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from townlet.cli.by_hand import Human, play_by_hand
from townlet.cli.console import err, out
from townlet.cli.keyboard import Keyboard
from townlet.cli.opening import find_run, trained_policy
from townlet.cli.options import ROOT, Root, Which, WhichOne, WorldChanges
from townlet.cli.stage import Seat, print_frames, watch
from townlet.errors import TownletError

if TYPE_CHECKING:
    from townlet.rng import Streams
    from townlet.sim.feasibility import Survival
    from townlet.sim.players import Player
    from townlet.train.policies import TrainedPolicy
    from townlet.world.tables import World

LONGEST: Final = 5000  # steps at which the lives behind the table are stopped where a world allows more


class Mode(StrEnum):
    """Who plays."""

    TRAINED = "trained"
    RANDOM = "random"
    PLANNER = "planner"
    HUMAN = "human"


def meaning(world: World, lives: Sequence[Survival]) -> str:
    """One sentence on what the table says."""
    means = {s.player: s for s in lives}
    begin = f"A random agent lives about {means['random'].mean:.0f} steps in {world.name}"
    if "trained" in means:
        planner = f", one that knows every rule {means['planner'].mean:.0f}" if "planner" in means else ""
        trained = means["trained"]
        return f"{begin}{planner}; this one lives {trained.mean:.0f} (the limit is {trained.limit})."
    if "planner" not in means:
        return f"{begin}: a learning agent has to beat that."
    best = means["planner"]
    if best.mean <= means["random"].mean:
        return f"{begin}, and planning ahead does not help: this world is too hard, or needs no care."
    return (
        f"{begin}; one that knows every rule lives {best.mean:.0f} (the limit is {best.limit}). "
        "What lies between the two is what a learning agent has to find out by itself."
    )


def play(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WORLD|RUN|ENV:VARIANT",
            help="A shipped world or a YAML file; or a run (name, path, latest), or the newest run of a recipe.",
        ),
    ] = "town",
    overrides: WorldChanges = None,
    mode: Annotated[
        list[Mode] | None,
        typer.Option(
            metavar="trained|random|planner|human",
            help="Who plays; may be given again. By default random and planner, of a run trained and random.",
        ),
    ] = None,
    speed: Annotated[float, typer.Option(min=0.1, max=1000, help="Steps shown in a second.")] = 20.0,
    steps: Annotated[int, typer.Option(min=1, help="Steps to show.")] = 500,
    lives: Annotated[int, typer.Option(min=1, max=100_000, help="Lives behind each line of the table.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Another number gives other lives.")] = 0,
    which: WhichOne = Which.BEST,
    root: Root = ROOT,
) -> None:
    """Watch agents live in a town, or live there yourself.

    Towns stand side by side; at the end you read how long each player lives.
    """
    from townlet.rng import Streams
    from townlet.sim.feasibility import measure, survival_table

    console, human, streams = out(), Human(), Streams(seed)
    run = find_run(what, root)
    modes = list(dict.fromkeys(mode or ([Mode.TRAINED, Mode.RANDOM] if run else [Mode.RANDOM, Mode.PLANNER])))
    _check(modes, console.is_terminal, run is not None, what)
    with err().status("preparing the town"):
        if run:
            from townlet.train.policies import require_interface
            from townlet.train.towns.measure import world_for

            trained = trained_policy(run, which.value)
            compiled = world_for(trained.loaded, overrides or ())
            require_interface(trained, compiled)
        else:
            from townlet.world.load import load

            trained, compiled = None, load(what, overrides or ())
        players = [human if m is Mode.HUMAN else _player(m, compiled, streams, trained) for m in modes]
        seats = [Seat.at(compiled, player, streams.key("towns")) for player in players]
    if Mode.HUMAN in modes:
        play_by_hand(seats, human, console)
    elif console.is_terminal:
        watch(seats, console, speed, steps)
    else:
        print_frames(seats, console, steps)

    limit = min(int(compiled.tables.max_steps), LONGEST)
    with err().status(f"{lives} lives each"):
        measured = streams.child("table")
        yardsticks = [_player(m, compiled, measured, trained) for m in _yardsticks(modes, run is not None)]
        found = [measure(compiled, player, lives, measured.key("towns"), limit) for player in yardsticks]
    console.print(survival_table(f"{compiled.name}: how long each lives", found))
    if human_ages := next((seat.ages for seat in seats if seat.player is human), []):
        console.print(f"You lived {', '.join(map(str, human_ages))} steps.")
    console.print(meaning(compiled, found))


def _check(modes: Sequence[Mode], terminal: bool, has_run: bool, what: str) -> None:
    """Refuse players who cannot play here."""
    if Mode.HUMAN in modes and not (terminal and Keyboard.available()):
        raise TownletError("--mode human needs a terminal with a keyboard", "use --mode random or --mode planner here")
    if Mode.TRAINED in modes and not has_run:
        fix = "name a run, as in `townlet play latest`, or train one: townlet train town:ppo"
        raise TownletError(f"--mode trained needs a run, and {what} is a world", fix)


def _player(mode: Mode, world: World, streams: Streams, trained: TrainedPolicy | None) -> Player:
    """Who plays in that mode; a trained one has a memory of its own."""
    if mode is Mode.TRAINED and trained is not None:
        from townlet.train.policies import TrainedPlayer

        return TrainedPlayer(trained.policy())
    from townlet.sim.players import make_player

    return make_player(mode, world, streams.numpy(mode))


def _yardsticks(modes: Sequence[Mode], has_run: bool) -> list[Mode]:
    """Players of the table: those asked for, always a random one to compare with."""
    usual = [Mode.TRAINED, Mode.RANDOM] if has_run else [Mode.RANDOM, Mode.PLANNER]
    asked = usual if Mode.HUMAN in modes else [*modes]
    return list(dict.fromkeys([Mode.RANDOM, *asked]))
