"""A town as a task: the world to train in, and the one to evaluate in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.agents.agent import Agent
from townlet.config.merge import MAX_SHOWN
from townlet.config.scalar import shorten, to_flow_yaml
from townlet.config.yaml import Node
from townlet.curriculum.curriculum import Curriculum, make_curriculum
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.errors import ConfigError, Diagnostic, SourceLocation, TownletError
from townlet.interfaces.counters import Counters
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.state import State
from townlet.interfaces.task import RawObservation
from townlet.interfaces.vec_env import Discrete, FinalObs, VecEnv
from townlet.recipes.schema import Recipe
from townlet.rng import Streams
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks.evaluation import ActingPolicy, BestCheckpoint, EvaluationResult
from townlet.tasks.town_evaluation import TownEvaluation, TownSummary, evaluate_town, summarize_town, town_seed
from townlet.tasks.town_metrics import TownMetrics
from townlet.town.engines.engine import Engine
from townlet.town.env import Town
from townlet.town.render.show import RenderedTown
from townlet.town.state import to_numpy
from townlet.town.world.load import find_world, from_text, load
from townlet.town.world.schema import Potential
from townlet.town.world.tables import World

Override = tuple[str, SourceLocation]  # `key=value` for the world, and its position in the recipe


class Worlds(NamedTuple):
    """The worlds to train and to evaluate in, with the same interface."""

    training: World
    evaluation: World


def load_worlds(recipe: Recipe, node: Node) -> Worlds:
    """Both worlds of a recipe; raises ConfigError with positions in the recipe."""
    training = list(world_overrides(node.child("change")))
    evaluation = node.child("evaluation")
    further = list(world_overrides(evaluation.child("change") if evaluation else None))
    here = load_world_with(recipe, node, training)
    # Shaping is for learning: evaluations use the rewards of the world.
    plain = recipe.model_copy(update={"potential": 0.0})
    there = load_world_with(plain, node, [*training, *further]) if further or recipe.potential else here
    if there.interface_hash != here.interface_hash:
        what = "evaluation.change changes the actions or the observation that the agent is trained with"
        fix = "change only keys that affect neither, such as max_steps"
        raise ConfigError([Diagnostic(what, fix, node.location_of("evaluation", "change"))])
    return Worlds(here, there)


def world_overrides(node: Node | None, path: tuple[str, ...] = ()) -> Iterator[Override]:
    """Each value below `change` as `key=value`, with dotted keys for nested mappings."""
    if node is None:
        return
    if isinstance(node.value, dict) and (node.value or not path):
        for key, below in node.value.items():
            yield from world_overrides(below, (*path, key))
        return
    text = json.dumps(node.to_python(), ensure_ascii=False)
    yield f"{'.'.join(path)}={text}", node.key_location or node.location


def load_world_with(recipe: Recipe, node: Node, wanted: Sequence[Override]) -> World:
    """The recipe's world with these overrides; the gamma of its shaping reward follows that of the agent."""
    path = find_world(recipe.world or recipe.env, Path(), node.location_of("world" if recipe.world else "env"))
    world = _load(path, wanted)
    shaping = next((r for r in world.spec.rewards if isinstance(r, Potential)), None)
    gamma = recipe.agent.gamma
    if shaping is None and recipe.potential:
        return _load(path, [*wanted, (_with_potential(world, recipe.potential, gamma), node.location_of("potential"))])
    if shaping is None or shaping.gamma == gamma:
        return world
    if "gamma" in shaping.model_fields_set:
        different = f"the reward `potential` has gamma {shaping.gamma:g}, but agent.gamma is {gamma:g}"
        what = f"{different}, so shaping would change the optimal policy"
        fix = "leave gamma out of the reward, so that it follows agent.gamma"
        raise ConfigError([Diagnostic(what, fix, node.location_of("change", "rewards"))])
    return _load(path, [*wanted, (f"rewards.potential.gamma={gamma!r}", node.location_of("agent", "gamma"))])


def _with_potential(world: World, weight: float, gamma: float) -> str:
    """An override that adds the reward `potential` to those of the world."""
    rewards = [reward.model_dump(mode="json", exclude_unset=True) for reward in world.spec.rewards]
    return "rewards=" + json.dumps([*rewards, {"name": "potential", "weight": weight, "gamma": gamma}])


def _load(path: Path, wanted: Sequence[Override]) -> World:
    """The world with these overrides; errors point at their position in the recipe."""
    places = {f"command line: {shorten(text, MAX_SHOWN)}": mark for text, mark in wanted}
    try:
        return load(path, [text for text, _ in wanted])
    except ConfigError as error:
        moved = [
            Diagnostic(m.what, m.fix, places.get(m.where.source, m.where) if m.where else None)
            for m in error.diagnostics
        ]
        raise ConfigError(moved) from None


def with_overrides(world: World, words: Sequence[str]) -> World:
    """The world with `key=value` overrides."""
    if not words:
        return world
    found = from_text(world_text(world, "run"), f"the world {world.name} of this run", words)
    return replace(found, name=world.name)


def world_text(world: World, role: str) -> str:
    """The world as self-contained YAML, one line per list entry."""
    lines = [
        f"# {world.name}, the complete world of this {role}: everything that it extends and every change is included."
    ]
    for key, value in world.spec.model_dump(mode="json", by_alias=True).items():
        if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
            lines += [f"{key}:", *(f"  - {to_flow_yaml(entry)}" for entry in value)]
        else:
            lines.append(f"{key}: {to_flow_yaml(value)}")
    return "\n".join(lines) + "\n"


class PolicyPlayer:
    """A policy as a player of towns (`townlet.town.planner.Player`); its network may be on another device."""

    name = "trained"

    def __init__(self, policy: ActingPolicy, greedy: bool = True, device: str = "cpu") -> None:
        self._policy, self._greedy, self._device, self._rows = policy, greedy, device, 0

    def act(self, engine: Engine) -> NDArray[np.int64]:
        """Actions [N]; rows of age 0 start an episode."""
        if self._rows != engine.rows:
            self._rows = engine.rows
            self._policy.reset(engine.rows)
        parts = (to_numpy(engine.obs), to_numpy(engine.mask), engine.peek()["age"] == 0)
        obs, mask, episode_start = (torch.from_numpy(part).to(self._device) for part in parts)
        return self._policy.act(obs, mask, episode_start, self._greedy).cpu().numpy()


@dataclass(frozen=True)
class TownTask:
    """A pair of worlds with the same interface; see `townlet.tasks.experiment.TrainingTask`."""

    worlds: Worlds

    @property
    def name(self) -> str:
        """Name of the world."""
        return self.worlds.training.name

    @property
    def interface(self) -> str:
        """Hash of observation and actions."""
        return self.worlds.training.interface_hash

    @property
    def layout(self) -> ObservationLayout:
        """The observation."""
        return self.worlds.training.layout

    @property
    def actions(self) -> Discrete:
        """The actions, by name."""
        return Discrete(self.worlds.training.actions)

    @property
    def limit(self) -> int:
        """`max_steps` of the world."""
        return self.worlds.training.spec.max_steps

    @property
    def threshold(self) -> None:
        """A town is never solved."""

    def raw_observation(self) -> RawObservation:
        """Observations of towns are not normalized."""
        return RawObservation(self.layout, None)

    def load_normalization(self, state: State) -> None:
        """Nothing to load."""

    def make_env(self, recipe: Recipe, threads: int, group: ProcessGroup = SINGLE_PROCESS) -> Town:
        """The town to train in: the rows of this process."""
        world, rows, starts = self.worlds.training, recipe.row_count // group.size, recipe.starts
        first, engine, device = group.rank * rows, recipe.engine, recipe.device
        return Town(world, rows, engine=engine, device=device, threads=threads, starts=starts, first=first)

    @property
    def final_value_names(self) -> tuple[str, ...]:
        """The meters."""
        return tuple(self.worlds.training.meters)

    def final_values(self, env: VecEnv, ended: FinalObs) -> NDArray[np.float32]:
        """The meters [k, M] at the end of episodes."""
        assert isinstance(env, Town)
        meters: NDArray[np.float32] = env.final_meters(ended).numpy()
        return meters

    def make_curriculum(self, recipe: Recipe) -> Curriculum | None:
        """The stages of the recipe, by row."""
        world = self.worlds.training
        if recipe.curriculum is None:
            return None
        return make_curriculum(recipe.curriculum, recipe.row_count, world.spec.max_steps, world.meters, world.rewards)

    def make_metrics(
        self, recipe: Recipe, env: VecEnv, agent: Agent, counters: Counters, curriculum: Curriculum | None,
        store: MetricsStore,
    ) -> TownMetrics:  # fmt: skip
        """Usage counts, novelty, highlights and the live feed."""
        assert isinstance(env, Town)
        return TownMetrics(recipe, env, agent, counters, curriculum, store)

    def evaluate(self, policy: ActingPolicy, recipe: Recipe, check_interrupt: Callable[[], None]) -> TownEvaluation:
        """Complete episodes in the evaluation world, as the recipe specifies."""
        settings, world = recipe.evaluation, self.worlds.evaluation
        return evaluate_town(
            policy, world, settings.episodes, settings.seed, greedy=settings.deterministic, device=recipe.device,
            check_interrupt=check_interrupt,
        )  # fmt: skip

    def render(self, policy: ActingPolicy, recipe: Recipe, device: str = "cpu") -> RenderedTown:
        """Episodes of an evaluation; the first is the first one that it plays."""
        settings = recipe.evaluation
        player = PolicyPlayer(policy, settings.deterministic, device)
        return RenderedTown(self.worlds.evaluation, player, Streams(town_seed(settings.seed)).key("town"))

    def summarize(
        self, policy: ActingPolicy, recipe: Recipe, random: EvaluationResult, agent: EvaluationResult,
        best: BestCheckpoint | None,
    ) -> TownSummary:  # fmt: skip
        """How long the agent lives without a time limit, and whether it works."""
        assert isinstance(random, TownEvaluation)
        assert isinstance(agent, TownEvaluation)
        return summarize_town(policy, recipe, random, agent, best)

    def fingerprint(self) -> dict[str, Any]:
        """Hashes of both worlds and of the interface."""
        training, evaluation = self.worlds
        return {
            "world": training.content_hash,
            "evaluation_world": evaluation.content_hash,
            "interface": training.interface_hash,
        }

    def describe(self) -> dict[str, Any]:
        """The map, for reports."""
        world = self.worlds.training
        places = dict(zip(world.affordances, world.tables.cell_of[0].tolist(), strict=True))
        return {"size": list(world.size), "places": None if world.tables.shuffled else places}

    def files(self) -> dict[str, str]:
        """Both worlds as self-contained YAML."""
        return {role: world_text(world, role) for role, world in self.worlds._asdict().items()}


def require_interface(world: World, trained_in: World, run: str) -> None:
    """Refuse a world in which the agent of a run cannot act, with the differences."""
    if world.interface_hash == trained_in.interface_hash:
        return
    here, there = ({b.name: list(b.shape) for b in w.layout} for w in (world, trained_in))
    names = [name for name in {**there, **here} if here.get(name) != there.get(name)]
    parts = [f"{name} is {here.get(name, 'absent')}, was {there.get(name, 'absent')}" for name in names]
    if world.actions != trained_in.actions:
        parts.append(f"{len(world.actions)} actions, was {len(trained_in.actions)}")
    differs = "; ".join(parts[:4]) or "the ranges of the observation differ"
    what = f"the world {world.name} does not fit the agent of {run}: {differs}"
    raise TownletError(what, "an agent needs the observation and the actions that it was trained with")
