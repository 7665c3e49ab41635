"""A town to be played in: who can live there, and how long each lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from townlet.cli.console import err
from townlet.cli.stage import Seat
from townlet.cli.town_keys import TownHands

if TYPE_CHECKING:
    from rich.console import Console

    from townlet.rng import Streams
    from townlet.town.feasibility import Survival
    from townlet.town.planner import Player
    from townlet.town.world.tables import World
    from townlet.train.policies import TrainedPolicy

LONGEST: Final = 5000  # steps at which the lives behind the table are stopped where a world allows more
STEPS: Final = 500
LIVES: Final = 200  # behind each line of the table
SPEED: Final = 20.0


@dataclass(frozen=True)
class TownPlace:
    """One world, and the agent that was trained for it, if there is one; see `townlet.cli.play.Place`."""

    world: World
    trained: TrainedPolicy | None
    streams: Streams
    lives: int
    greedy: bool = True

    modes = ("trained", "random", "planner", "human")
    steps: int | None = STEPS
    episodes: int | None = None
    speed: float = SPEED

    @property
    def usual(self) -> list[str]:
        """Who plays when nobody is named."""
        return ["trained", "random"] if self.trained else ["random", "planner"]

    def seat(self, mode: str, drawn: str) -> Seat:
        """A player in a town of its own; a person needs none."""
        from townlet.town.render.show import TownShow

        player = _player("passive" if mode == "human" else mode, self, self.streams)
        return Seat("you" if mode == "human" else player.name, TownShow(self.world, player, self.streams.key("towns")))

    def hands(self, seat: Seat) -> TownHands:
        """The keys of a person."""
        from townlet.town.render.show import TownShow

        assert isinstance(seat.show, TownShow)
        return TownHands(seat.show)

    def finish(self, seats: Sequence[Seat], modes: Sequence[str], console: Console) -> None:
        """How long each lives, as a table and a sentence."""
        from townlet.town.feasibility import measure, survival_table

        limit = min(int(self.world.tables.max_steps), LONGEST)
        with err().status(f"{self.lives} lives each"):
            measured = self.streams.child("table")
            asked = self.usual if "human" in modes else [*modes]
            yardsticks = [_player(mode, self, measured) for mode in dict.fromkeys(["random", *asked])]
            found = [measure(self.world, player, self.lives, measured.key("towns"), limit) for player in yardsticks]
        console.print(survival_table(f"{self.world.name}: how long each lives", found))
        if mine := next((seat.ended for seat in seats if seat.name == "you"), []):
            console.print(f"You lived {', '.join(f'{one.score:.0f}' for one in mine)} steps.")
        console.print(meaning(self.world, found))


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


def _player(mode: str, place: TownPlace, streams: Streams) -> Player:
    """Who plays in that mode; a trained one has a memory of its own."""
    if mode == "trained" and place.trained is not None:
        from townlet.tasks.town_player import TrainedPlayer

        return TrainedPlayer(place.trained.policy(), place.greedy)
    from townlet.town.planner import make_player

    return make_player(mode, place.world, streams.numpy(mode))
