"""Where one plays: from a word on the command line to a town or a Gymnasium environment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

from townlet.cli.by_hand import Hands
from townlet.cli.opening import find_run, trained_policy
from townlet.cli.stage import Seat
from townlet.errors import Mark, TownletError

if TYPE_CHECKING:
    from rich.console import Console

    from townlet.recipes.load import Loaded
    from townlet.town.world.tables import World
    from townlet.train.policies import TrainedPolicy

ENVIRONMENT: Final = re.compile(r"[\w./-]+-v\d+")  # what ids of Gymnasium look like


class Place(Protocol):
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

    def seat(self, mode: str, drawn: str) -> Seat:
        """Who plays in that mode, `drawn` as a picture, for a terminal or for a pipe."""

    def hands(self, seat: Seat) -> Hands:
        """The keys of a person."""

    def finish(self, seats: Sequence[Seat], modes: Sequence[str], console: Console) -> None:
        """Say what came of it."""


@dataclass(frozen=True)
class Wanted:
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


def find_place(what: str, root: Path, wanted: Wanted) -> Place:
    """The place behind a word: a world, a run, a recipe or the id of an environment."""
    if ENVIRONMENT.fullmatch(what) and not Path(what).exists() and not (root / what).exists():
        return _environment(what, wanted)
    try:
        run = find_run(what, root)
    except TownletError:
        if ":" not in what or not wanted.untrained:
            raise
        from townlet.recipes.load import load

        return _of_recipe(load(what, wanted.changes), None, wanted)
    if run is not None:
        trained = trained_policy(run, wanted.which)
        return _of_recipe(trained.loaded, trained, wanted)
    from townlet.town.world.load import load as load_world

    _require_run(what, wanted)
    return _town(load_world(what, wanted.changes), None, wanted)


def _of_recipe(loaded: Loaded, trained: TrainedPolicy | None, wanted: Wanted) -> Place:
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
    from townlet.cli.play_gym import GymPlace
    from townlet.tasks.gym import GymArena

    if trained and wanted.changes:
        what = f"{wanted.changes[0]}: {loaded.recipe.env} is not a town"
        raise TownletError(what, "leave it out; an agent plays in the environment it was trained in")
    assert isinstance(loaded.arena, GymArena)
    _refuse_lives(loaded.recipe.env, wanted)
    return GymPlace(loaded.arena, trained, wanted.seed, greedy)


def _town(world: World, trained: TrainedPolicy | None, wanted: Wanted, greedy: bool = True) -> Place:
    from townlet.cli.play_town import LIVES, TownPlace
    from townlet.rng import Streams

    return TownPlace(world, trained, Streams(wanted.seed), wanted.lives or LIVES, greedy)


def _environment(id: str, wanted: Wanted) -> Place:
    """An environment as it is, or changed by keys of `gym` in a recipe, as in kwargs.is_slippery=false."""
    from townlet.cli.play_gym import GymPlace
    from townlet.config.check import build
    from townlet.config.overrides import apply
    from townlet.config.yaml import Node
    from townlet.gym.spec import EnvSpec
    from townlet.tasks.gym import GymArena

    _require_run(id, wanted)
    _refuse_lives(id, wanted)
    words = [change.removeprefix("gym.") for change in wanted.changes]  # as a recipe has them, too
    spec = build(EnvSpec, apply(Node({}, Mark("command line")), words))
    arena = GymArena(id, spec)
    arena.look()
    return GymPlace(arena, None, wanted.seed)


def _refuse_lives(name: str, wanted: Wanted) -> None:
    if wanted.lives is not None:
        raise TownletError(f"--lives: {name} is not a town", "leave it out; --episodes says how many are shown")


def _require_run(what: str, wanted: Wanted) -> None:
    if "trained" in wanted.modes:
        kind = "an environment" if ENVIRONMENT.fullmatch(what) else "a world"
        train = f"`townlet train {what}`" if kind == "an environment" else "`townlet train town`"
        fix = f"name a run, as in `townlet play latest`, or train one: {train} (`townlet recipes` lists all recipes)"
        raise TownletError(f"--mode trained needs a run, and {what} is {kind}", fix)
