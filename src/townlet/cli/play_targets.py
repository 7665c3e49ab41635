"""Targets of `townlet play`: a town or a Gymnasium environment, with its players, keys and final summary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from townlet.cli.console import echo, err, out, plural
from townlet.cli.play_screen import PlayerView
from townlet.errors import TownletError

if TYPE_CHECKING:
    from townlet.rng import Streams
    from townlet.tasks.evaluation import ActingPolicy
    from townlet.tasks.gym import GymTask
    from townlet.tasks.gym_playback import RenderedGym, RenderMode
    from townlet.town.feasibility import SurvivalStats
    from townlet.town.planner import Player
    from townlet.town.render.rendered_town import RenderedTown
    from townlet.town.world.tables import World
    from townlet.train.policies import TrainedPolicy

TOWN_STEPS, TOWN_SPEED = 500, 20.0
TABLE_EPISODES: Final = 200  # default of --table-episodes
MAX_TABLE_STEPS: Final = 5000  # episodes for the table are cut off here, even if the world's max_steps is higher
GYM_EPISODES: Final = 3
MOVE_KEYS: Final = {
    "up": "UP", "down": "DOWN", "left": "LEFT", "right": "RIGHT",
    "w": "UP", "s": "DOWN", "a": "LEFT", "d": "RIGHT",
    "<": "BELOW", ">": "ABOVE", " ": "INTERACT", "e": "INTERACT", ".": "WAIT",
}  # fmt: skip
# Keys of affordances in worlds without a map, and of Gymnasium actions. q is missing: it quits.
AFFORDANCE_KEYS: Final = "1234567890abcdefghijklmnoprstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-*"
ACTION_KEYS: Final = "1234567890abcdefghijklmnoprstuvwxyz"
# Additional keys for words in the names of Gymnasium actions.
WORD_KEYS: Final = {
    "up": "up", "north": "up", "down": "down", "south": "down", "left": "left", "west": "left", "right": "right",
    "east": "right", "fire": " ", "main": " ", "interact": " ", "pick": " ",
    "none": ".", "noop": ".", "nothing": ".", "wait": ".",
}  # fmt: skip
KEY_SYMBOLS: Final = {"up": "↑", "down": "↓", "left": "←", "right": "→", " ": "space"}


@dataclass(frozen=True)
class TownTarget:
    """A world, and the agent trained for it, if any."""

    world: World
    trained: TrainedPolicy | None
    seed: int
    table_episodes: int | None = None
    greedy: bool = True

    # Available modes (who plays), and the defaults of --steps, --episodes and --speed.
    modes = ("trained", "random", "planner", "human")
    steps = TOWN_STEPS
    episodes = None
    speed = TOWN_SPEED

    @cached_property
    def streams(self) -> Streams:
        from townlet.rng import Streams

        return Streams(self.seed)

    @property
    def default_modes(self) -> list[str]:
        """The trained agent next to a random one, or a random agent next to the planner."""
        return ["trained", "random"] if self.trained else ["random", "planner"]

    def player_view(self, mode: str, medium: str) -> PlayerView:
        from townlet.town.render.rendered_town import RenderedTown

        player = self._make_player("passive" if mode == "human" else mode, self.streams)
        name = "you" if mode == "human" else player.name
        return PlayerView(name, RenderedTown(self.world, player, self.streams.key("towns")))

    def _make_player(self, mode: str, streams: Streams) -> Player:
        if mode == "trained" and self.trained is not None:
            from townlet.tasks.town import PolicyPlayer

            return PolicyPlayer(self.trained.policy(), self.greedy)
        from townlet.town.planner import make_player

        return make_player(mode, self.world, streams.numpy(mode))

    def key_bindings(self, player: PlayerView) -> TownKeys:
        return TownKeys(cast("RenderedTown", player.env))

    def print_summary(self, players: Sequence[PlayerView], modes: Sequence[str]) -> None:
        """Measure how long each kind of player survives and print a table and a sentence."""
        from townlet.town.feasibility import measure_survival, survival_table

        limit = min(int(self.world.tables.max_steps), MAX_TABLE_STEPS)
        episodes = self.table_episodes or TABLE_EPISODES
        with err().status(f"{episodes} episodes per player"):
            streams = self.streams.child("table")
            measured_modes = dict.fromkeys(["random", *(self.default_modes if "human" in modes else modes)])
            measured = [self._make_player(mode, streams) for mode in measured_modes]
            stats = [measure_survival(self.world, player, episodes, streams.key("towns"), limit) for player in measured]
        out().print(survival_table(f"{self.world.name}: how long each player survives", stats))
        if yours := next((player.finished for player in players if player.name == "you"), []):
            echo(f"You survived {', '.join(f'{episode.score:.0f}' for episode in yours)} steps.")
        out().print(survival_summary(self.world, stats))


def survival_summary(world: World, stats: Sequence[SurvivalStats]) -> str:
    """Compare the mean survival of the measured players in one sentence or two."""
    by_player = {s.player: s for s in stats}
    random = by_player["random"].mean
    start = f"A random agent survives about {random:.0f} steps in {world.name}"
    if "trained" in by_player:
        planner = f", the planner {by_player['planner'].mean:.0f}" if "planner" in by_player else ""
        trained = by_player["trained"]
        return f"{start}{planner}; this agent survives {trained.mean:.0f} (the limit is {trained.limit})."
    if "planner" not in by_player:
        return f"{start}; a trained agent should do better."
    best = by_player["planner"]
    if best.mean <= random:
        return f"{start}, and the planner survives no longer: this world is too hard, or needs no skill."
    return (
        f"{start}; the planner, which uses the rules, survives {best.mean:.0f} (the limit is {best.limit}). "
        "Training should close that gap."
    )


@dataclass(frozen=True)
class TownKeys:
    """Key bindings of a town."""

    env: RenderedTown

    def legend(self) -> str:
        world = self.env.world
        if not world.size:
            keys = zip(AFFORDANCE_KEYS, world.affordances, strict=False)
            return f"{'  '.join(f'{key} {name}' for key, name in keys)}  . wait  q quit"
        levels = "  < > levels" if "ABOVE" in world.actions else ""
        return f"arrows or wasd move{levels}  space or e use  . wait  ? places  q quit"

    def choose(self, key: str) -> int | str:
        world, scene = self.env.world, self.env.scene
        if key == "?":
            from townlet.town.world import icons

            return " · ".join(f"{icons.label(a.icon, a.name)} {a.name}" for a in world.spec.affordances)
        name = MOVE_KEYS.get(key, "")
        action = world.actions.index(name) if name in world.actions else None
        if not world.size and key in AFFORDANCE_KEYS[: len(world.affordances)]:
            action = AFFORDANCE_KEYS.index(key)
        if action is None:
            return f"{key!r} does nothing here · {self.legend()}"
        if scene.mask[action]:
            return action
        name = world.actions[action]
        if not name.startswith("INTERACT"):
            return f"{name}: the map ends here"
        place = scene.here if world.size else action
        if place >= len(world.affordances):
            return "INTERACT: there is nothing to use on this cell; walk to a place first"
        closed = not world.tables.open_at[place, scene.hour]
        reason = f"is closed at hour {scene.hour}" if closed else "costs more than you have"
        return f"{world.affordances[place]} {reason}"

    def warning(self, action: int) -> str:
        """A warning if INTERACT costs more than the agent has and will have no effect; "" otherwise."""
        scene = self.env.scene
        world, t = scene.world, scene.world.tables
        if not t.first_interact <= action < t.wait:
            return ""
        place = scene.here if world.size else action
        if place == t.n_affordances or scene.meters[t.currency] >= t.price[place] - t.tolerance:
            return ""
        cost = f"${t.price[place] * world.spec.dollars:.2f}"
        return f"{world.affordances[place]} costs {cost} and you have ${scene.dollars:.2f}: the step was wasted"


@dataclass(frozen=True)
class GymTarget:
    """A Gymnasium environment, and the agent trained for it, if any."""

    task: GymTask
    trained: TrainedPolicy | None
    seed: int
    greedy: bool = True

    steps: int | None = None
    episodes: int | None = GYM_EPISODES

    @property
    def modes(self) -> list[str]:
        return [*(["trained"] if self.trained else []), "random", "human"]

    @property
    def default_modes(self) -> list[str]:
        """The trained agent, or a random one."""
        return ["trained"] if self.trained else ["random"]

    @property
    def speed(self) -> float:
        """The environment's frame rate."""
        return self.task.render_info.fps

    def player_view(self, mode: str, medium: str) -> PlayerView:
        """A player in its own environment. A human gets a random policy that is never used: keys choose the actions."""
        from townlet.rng import Streams
        from townlet.tasks.evaluation import RandomPolicy

        policy: ActingPolicy = RandomPolicy(self.task.actions, Streams(self.seed).torch("random"))
        if mode == "trained" and self.trained is not None:
            policy = self.trained.policy()
        render_mode = cast("RenderMode | None", self._render_mode(medium))
        env = self.task.render_episodes(policy, self.seed, render_mode, greedy=self.greedy)
        return PlayerView("you" if mode == "human" else mode, env)

    def _render_mode(self, medium: str) -> str | None:
        """The first suitable mode, or None if text is not available; raises TownletError if images are not."""
        available = self.task.render_info.modes
        suitable = {"image": ("rgb_array",), "terminal": ("ansi", "rgb_array"), "pipe": ("ansi",)}[medium]
        mode = next((mode for mode in suitable if mode in available), None)
        if mode is None and medium == "image":
            raise TownletError(f"{self.task.name} cannot render images", "drop --window and --video")
        return mode

    def key_bindings(self, player: PlayerView) -> GymKeys:
        """Keys for a human player; raises TownletError if the actions are not discrete."""
        from townlet.interfaces.vec_env import Discrete

        if not isinstance(self.task.actions, Discrete):
            what = f"the actions of {self.task.name} are not discrete, so they have no keys"
            raise TownletError(what, "use --mode random, or --mode trained with a run")
        return GymKeys(cast("RenderedGym", player.env), self.task.actions.names)

    def print_summary(self, players: Sequence[PlayerView], modes: Sequence[str]) -> None:
        """Print the return of each episode and the mean of the first player."""
        from townlet.runs.summary_text import success_marks
        from townlet.tasks.comparison import format_return

        for player in players:
            returns = ", ".join(format_return(episode.score) for episode in player.finished) or "no episode ended"
            echo(f"{player.name}: {returns}")
        first = players[0]
        if first.finished:
            mean = sum(episode.score for episode in first.finished) / len(first.finished)
            who = {"you": "You get", "trained": "This agent gets"}.get(first.name, "A random agent gets")
            marks = success_marks(self.task.describe()).items()
            success = "".join(f"; {name} {format_return(mark)}" for name, mark in marks)
            echo(f"{who} {format_return(mean)} on average over {plural(len(first.finished), 'episode')}{success}.")


@dataclass(frozen=True)
class GymKeys:
    """Key bindings of a Gymnasium environment."""

    env: RenderedGym
    names: Sequence[str]

    @cached_property
    def keys(self) -> dict[str, int]:
        """The action of each key: digits, then letters, in order; further keys for words in the names of actions."""
        keys = dict(zip(ACTION_KEYS, range(len(self.names)), strict=False))
        for action, name in enumerate(self.names):
            for word in re.findall(r"[a-z]+", name.lower()):
                if (key := WORD_KEYS.get(word)) is not None:
                    keys.setdefault(key, action)
        return keys

    def legend(self) -> str:
        by_action: dict[int, list[str]] = {}
        for key, action in self.keys.items():
            by_action.setdefault(action, []).append(KEY_SYMBOLS.get(key, key))
        return "  ".join([*(f"{' '.join(keys)} {self.names[a]}" for a, keys in by_action.items()), "q quit"])

    def choose(self, key: str) -> int | str:
        action = self.keys.get(key)
        if action is None:
            return f"{key!r} does nothing here · {self.legend()}"
        valid = self.env.rollout.frames[-1].mask[action]
        return action if valid else f"{self.names[action]} is not valid now · {self.legend()}"

    def warning(self, action: int) -> str:
        return ""


PlayTarget = TownTarget | GymTarget
