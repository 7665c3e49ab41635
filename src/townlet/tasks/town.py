"""A town as a task: the world to train in, and the one to evaluate in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.agents.agent import Agent
from townlet.config.merge import MAX_SHOWN, entry_name
from townlet.config.scalar import shorten, to_flow_yaml
from townlet.config.yaml import Node
from townlet.curriculum.curriculum import Curriculum, make_curriculum
from townlet.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from townlet.errors import ConfigError, Diagnostic, SourceLocation
from townlet.interfaces.counters import Counters
from townlet.interfaces.state import State
from townlet.interfaces.task import RawObservation
from townlet.interfaces.vec_env import Discrete, FinalObs, VecEnv
from townlet.recipes.schema import Recipe
from townlet.rng import Streams
from townlet.runs.metrics_store import MetricsStore
from townlet.tasks import town_evaluation
from townlet.tasks.env_metrics import TownMetrics
from townlet.tasks.evaluation import ActingPolicy, BestCheckpoint, EvaluationResult
from townlet.tasks.town_evaluation import LIMIT_FACTOR, TownEvaluation, TownSummary, evaluate_town, with_limit
from townlet.town.engines.engine import Engine
from townlet.town.env import Town
from townlet.town.render.rendered_town import RenderedTown
from townlet.town.state import to_numpy
from townlet.town.world.load import find_world, from_spec, from_text, inherit, load, read_world, shipped
from townlet.town.world.schema import Potential
from townlet.town.world.tables import World

Override = tuple[str, SourceLocation]  # `key=value` for the world, and its position in the recipe


class Worlds(NamedTuple):
    """The worlds to train and to evaluate in, with the same interface."""

    training: World
    evaluation: World


def load_worlds(recipe: Recipe, node: Node) -> Worlds:
    """The training and evaluation world of a recipe; errors give positions in the recipe."""
    overrides = list(world_overrides(node.child("change")))
    settings = node.child("evaluation")
    eval_overrides = list(world_overrides(settings.child("change") if settings else None))
    training = evaluation = load_world_with(recipe, node, overrides)
    if eval_overrides or recipe.potential:  # no shaping in evaluations: they use the rewards of the world
        unshaped = recipe.model_copy(update={"potential": 0.0})
        evaluation = load_world_with(unshaped, node, [*overrides, *eval_overrides])
    if evaluation.interface_hash != training.interface_hash:
        what = "evaluation.change changes the actions or the observation that the agent is trained with"
        fix = "change only keys that affect neither, such as max_steps"
        raise ConfigError([Diagnostic(what, fix, node.location_of("evaluation", "change"))])
    return Worlds(training, evaluation)


def without_shaping(world: World) -> World:
    """A world without the reward `potential`, which a recipe adds with the weight `potential`."""
    rewards = tuple(reward for reward in world.spec.rewards if not isinstance(reward, Potential))
    return from_spec(world.spec.model_copy(update={"rewards": rewards}), world.name)


def world_overrides(node: Node | None, path: tuple[str, ...] = ()) -> Iterator[Override]:
    """Each setting of a `change` mapping as `key=value`, with dotted keys for nested mappings."""
    if node is None:
        return
    if isinstance(node.value, dict) and (node.value or not path):
        for key, below in node.value.items():
            yield from world_overrides(below, (*path, key))
        return
    text = json.dumps(node.to_python(), ensure_ascii=False)
    yield f"{'.'.join(path)}={text}", node.key_location or node.location


def load_world_with(recipe: Recipe, node: Node, overrides: Sequence[Override]) -> World:
    """The recipe's world with overrides and the recipe's shaping reward, whose gamma is that of the agent."""
    path = find_world(recipe.world or recipe.env, Path(), node.location_of("world" if recipe.world else "env"))
    world = _load(path, overrides)
    shaping = next((r for r in world.spec.rewards if isinstance(r, Potential)), None)
    gamma = recipe.agent.gamma
    if shaping is None and recipe.potential:
        rewards = [reward.model_dump(mode="json", exclude_unset=True) for reward in world.spec.rewards]
        rewards.append({"name": "potential", "weight": recipe.potential, "gamma": gamma})
        return _load(path, [*overrides, (f"rewards={json.dumps(rewards)}", node.location_of("potential"))])
    if shaping is None or shaping.gamma == gamma:
        return world
    if "gamma" in shaping.model_fields_set:
        different = f"the reward `potential` has gamma {shaping.gamma:g}, but agent.gamma is {gamma:g}"
        what = f"{different}, so shaping would change the optimal policy"
        fix = "leave gamma out of the reward, so that it follows agent.gamma"
        raise ConfigError([Diagnostic(what, fix, _location_of_shaping(path, node))])
    return _load(path, [*overrides, (f"rewards.potential.gamma={gamma!r}", node.location_of("agent", "gamma"))])


def _location_of_shaping(path: Path, node: Node) -> SourceLocation:
    """The location of the reward `potential`: in the recipe's `change`, else in the file of the world."""
    if node.at(("change", "rewards")):
        return node.location_of("change", "rewards")
    rewards = inherit(read_world(path), path, []).child("rewards")
    entries = rewards.value if rewards and isinstance(rewards.value, list) else []
    return next(entry.location_of("gamma") for entry in entries if entry_name(entry) == "potential")


def _load(path: Path, overrides: Sequence[Override]) -> World:
    """The world with these overrides; errors point to the override's position in the recipe."""
    locations = {f"command line: {shorten(text, MAX_SHOWN)}": location for text, location in overrides}
    try:
        return load(path, [text for text, _ in overrides])
    except ConfigError as error:
        located = []
        for d in error.diagnostics:
            where = locations.get(d.where.source, d.where) if d.where else None
            located.append(Diagnostic(d.what, d.fix, where))
        raise ConfigError(located) from None


def with_overrides(world: World, overrides: Sequence[str]) -> World:
    """The world with `key=value` overrides."""
    if not overrides:
        return world
    changed = from_text(world_text(world, "run"), f"the world {world.name} of this run", overrides)
    return replace(changed, name=world.name)


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


class TownTask:
    """A pair of worlds with the same interface; see `townlet.tasks.experiment.TrainingTask`."""

    threshold: float | None = None  # a town is never solved
    goal: float | None = None

    def __init__(self, worlds: Worlds) -> None:
        self.worlds, world = worlds, worlds.training
        own = () if world.name in shipped() else world.warnings  # those of shipped worlds are intended
        self.notes = [f"World {world.name}: {warning}." for warning in own]
        self.name, self.interface, self.layout = world.name, world.interface_hash, world.layout
        self.actions, self.limit = Discrete(world.actions), world.spec.max_steps
        self.final_value_names = world.meters

    def raw_observation(self) -> RawObservation:
        return RawObservation(self.layout, None)

    def load_normalization(self, state: State) -> None:
        """Nothing to load."""

    def make_env(self, recipe: Recipe, threads: int, group: ProcessGroup = SINGLE_PROCESS) -> Town:
        world, rows, starts = self.worlds.training, recipe.row_count // group.size, recipe.starts
        first, engine, device = group.rank * rows, recipe.engine, recipe.device
        return Town(world, rows, engine=engine, device=device, threads=threads, starts=starts, first=first)

    def final_values(self, env: VecEnv, ended: FinalObs) -> NDArray[np.float32]:
        assert isinstance(env, Town)
        return env.final_meters(ended).numpy()

    def make_curriculum(self, recipe: Recipe) -> Curriculum | None:
        world = self.worlds.training
        if recipe.curriculum is None:
            return None
        return make_curriculum(recipe.curriculum, recipe.row_count, world.spec.max_steps, world.meters, world.rewards)

    def make_metrics(
        self, recipe: Recipe, env: VecEnv, agent: Agent, counters: Counters, curriculum: Curriculum | None,
        store: MetricsStore,
    ) -> TownMetrics:  # fmt: skip
        assert isinstance(env, Town)
        return TownMetrics(recipe, env, agent, counters, curriculum, store)

    def evaluate(self, policy: ActingPolicy, recipe: Recipe, check_interrupt: Callable[[], None]) -> TownEvaluation:
        settings, world = recipe.evaluation, self.worlds.evaluation
        return evaluate_town(
            policy, world, settings.episodes, settings.seed, greedy=settings.deterministic, device=recipe.device,
            check_interrupt=check_interrupt,
        )  # fmt: skip

    def render(self, policy: ActingPolicy, recipe: Recipe, device: str = "cpu") -> RenderedTown:
        """Episodes of the evaluation, starting with its first."""
        settings = recipe.evaluation
        player = PolicyPlayer(policy, settings.deterministic, device)
        seed = Streams(town_evaluation.town_seed(settings.seed)).key("town")
        return RenderedTown(self.worlds.evaluation, player, seed)

    def summarize(
        self, policy: ActingPolicy, recipe: Recipe, random: EvaluationResult, trained: EvaluationResult,
        best: BestCheckpoint | None,
    ) -> TownSummary:  # fmt: skip
        assert isinstance(random, TownEvaluation)
        assert isinstance(trained, TownEvaluation)
        settings, greedy = recipe.evaluation, recipe.evaluation.deterministic
        world = with_limit(trained.world, LIMIT_FACTOR * trained.world.spec.max_steps)
        longer = evaluate_town(policy, world, len(trained.length), settings.seed, greedy=greedy, device=recipe.device)
        return TownSummary(random, trained, longer, best, greedy)

    def fingerprint(self) -> dict[str, Any]:
        return {"world": self.worlds.training.content_hash, "evaluation_world": self.worlds.evaluation.content_hash}

    def describe(self) -> dict[str, Any]:
        """The interface, and the map for reports."""
        world = self.worlds.training
        places = dict(zip(world.affordances, world.tables.cell_of[0].tolist(), strict=True))
        where = None if world.tables.shuffled else places
        return {"interface": self.interface, "size": list(world.size), "places": where}

    def files(self) -> dict[str, str]:
        return {role: world_text(world, role) for role, world in self.worlds._asdict().items()}
