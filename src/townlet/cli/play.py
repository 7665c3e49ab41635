"""`townlet play`: watch players in a town or an environment, or play yourself; ends with what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from townlet.cli.by_hand import play_by_hand
from townlet.cli.console import err, out
from townlet.cli.keyboard import Keyboard
from townlet.cli.options import ROOT, AllowCode, Root, Sample, Which, WhichOne, WorldChanges
from townlet.cli.places import Place, Wanted, find_place
from townlet.cli.stage import Seat, print_frames, watch
from townlet.errors import TownletError

if TYPE_CHECKING:
    from rich.console import Console

FILMED: Final = 10_000  # steps after which an episode in a video is cut


class Mode(StrEnum):
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
        list[Mode] | None,
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
    which: WhichOne = Which.BEST,
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
            wanted = Wanted(tuple(overrides or ()), asked, which.value, seed, lives, sample)
            place = find_place(what, root, wanted)
            modes = asked or list(place.usual)
            if odd := [one for one in modes if one not in place.modes]:
                raise TownletError(f"there is no {odd[0]} in {what}", f"known there: {', '.join(place.modes)}")
            if sample is not None and Mode.TRAINED not in modes:
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
    if Mode.HUMAN in modes and (not keys or video):
        raise TownletError("--mode human needs a terminal with a keyboard", "use --mode random here")
    if Mode.HUMAN in modes and steps:
        raise TownletError("--steps: whoever plays by hand plays until they leave", "leave it out, or use --episodes")
    if by_step and (not keys or video):
        raise TownletError("--step needs a terminal with a keyboard, or --window", "leave it out here")


def _show(
    place: Place,
    seats: Sequence[Seat],
    title: str | None,
    console: Console,
    speed: float,
    steps: int | None,
    by_step: bool,
) -> None:
    """On the terminal, or in a window of that title."""
    from townlet.cli.screens import InWindow, Terminal

    yours = next((seat for seat in seats if seat.name == "you"), None)
    hands = place.hands(yours) if yours else None
    with Terminal(console) if title is None else InWindow(f"Townlet · {title}") as screen:
        if yours and hands:
            play_by_hand(seats, yours, hands, screen)
        else:
            watch(seats, screen, speed, steps, by_step)


def _film(seats: Sequence[Seat], path: Path, episodes: int, steps: int, console: Console) -> None:
    from townlet.runs.video import film

    shows = [seat.show for seat in seats]
    with err().status("filming"):
        frames = film(shows, path, episodes=episodes, steps=steps, ended=lambda: _note(seats))
    seconds = frames / shows[0].rate
    console.print(f"Wrote {path}: {frames} pictures, {seconds:.0f} seconds.", markup=False, soft_wrap=True)


def _note(seats: Sequence[Seat]) -> None:
    for seat in seats:
        seat.note()
