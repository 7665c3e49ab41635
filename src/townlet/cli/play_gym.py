"""A Gymnasium environment to be played in: who can play there, and what each won."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from townlet.cli.gym_keys import GymHands
from townlet.cli.stage import Seat
from townlet.errors import TownletError

if TYPE_CHECKING:
    from rich.console import Console

    from townlet.tasks.evaluation import Acting
    from townlet.tasks.gym import GymArena
    from townlet.tasks.gym_show import Mode
    from townlet.train.policies import TrainedPolicy

EPISODES: Final = 3


@dataclass(frozen=True)
class GymPlace:
    """One environment, and the agent that was trained for it, if there is one; see `townlet.cli.play.Place`."""

    arena: GymArena
    trained: TrainedPolicy | None
    seed: int
    greedy: bool = True

    steps: int | None = None
    episodes: int | None = EPISODES

    @property
    def modes(self) -> list[str]:
        """Who can play here."""
        return [*(["trained"] if self.trained else []), "random", "human"]

    @property
    def usual(self) -> list[str]:
        """Who plays when nobody is named."""
        return ["trained"] if self.trained else ["random"]

    @property
    def speed(self) -> float:
        """As the environment would be shown."""
        return self.arena.looks.rate

    def seat(self, mode: str, drawn: str) -> Seat:
        """A player in an environment of its own; a person's is played by chance until a key is pressed."""
        from townlet.tasks.gym_show import GymShow

        how = cast("Mode | None", self._drawn(drawn))
        show = GymShow(self.arena, self._player(mode), self.seed, how, greedy=self.greedy)
        return Seat("you" if mode == "human" else mode, show)

    def _drawn(self, where: str) -> str | None:
        """The render mode that suits: pictures for windows and videos, elsewhere text where there is one."""
        known = self.arena.looks.modes
        wanted = {"picture": ("rgb_array",), "terminal": ("ansi", "rgb_array"), "pipe": ("ansi",)}[where]
        found = next((mode for mode in wanted if mode in known), None)
        if found is None and where == "picture":
            raise TownletError(f"{self.arena.name} draws no pictures", "leave out --window and --video")
        return found

    def _player(self, mode: str) -> Acting:
        from townlet.rng import Streams
        from townlet.tasks.evaluation import Uniform

        if mode == "trained" and self.trained is not None:
            return self.trained.policy()
        return Uniform(self.arena.actions, Streams(self.seed).torch("random"))

    def hands(self, seat: Seat) -> GymHands:
        """The keys of a person, where actions are choices."""
        from townlet.interfaces.vec_env import Discrete
        from townlet.tasks.gym_show import GymShow

        if not isinstance(self.arena.actions, Discrete):
            what = f"the actions of {self.arena.name} are no choices that a key could stand for"
            raise TownletError(what, "use --mode random, or --mode trained of a run")
        assert isinstance(seat.show, GymShow)
        return GymHands(seat.show, self.arena.actions.names)

    def finish(self, seats: Sequence[Seat], modes: Sequence[str], console: Console) -> None:
        """What each episode brought, and a sentence."""
        from townlet.tasks.gym_summary import figure

        for seat in seats:
            won = ", ".join(figure(one.score) for one in seat.ended) or "no episode ended"
            console.print(f"{seat.name}: {won}", markup=False, soft_wrap=True)
        first = seats[0]
        if first.ended:
            mean = sum(one.score for one in first.ended) / len(first.ended)
            who = "You get" if first.name == "you" else "This agent gets" if first.name == "trained" else "Chance gets"
            goal = self.arena.threshold
            solved = "" if goal is None else f"; from {figure(goal)} on {self.arena.name} counts as solved"
            over = f"{len(first.ended)} episode" + "s" * (len(first.ended) != 1)
            console.print(f"{who} {figure(mean)} on average of {over}{solved}.", markup=False, soft_wrap=True)
