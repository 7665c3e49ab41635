"""Summary of a run in sentences: survival, causes of death and work."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from townlet import load_world
from townlet.interfaces.vec_env import Discrete
from townlet.tasks.evaluation import BestCheckpoint, RandomPolicy
from townlet.tasks.town_evaluation import (
    LIMIT_FACTOR,
    PlannerPolicy,
    TownEvaluation,
    TownSummary,
    evaluate_town,
    with_limit,
)
from townlet.town.world.tables import World
from townlet.train.training import build_training
from train.tiny import tiny


class WaitPolicy:
    """Always waits."""

    def reset(self, rows: int) -> None:
        pass

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        assert mask is not None
        return torch.full((len(mask),), mask.shape[1] - 1)


class LateWaitPolicy(PlannerPolicy):
    """Plans for 200 steps, then always waits."""

    def reset(self, rows: int) -> None:
        self._age = 0

    def act(self, obs: Tensor, mask: Tensor | None, episode_start: Tensor | None = None, greedy: bool = True) -> Tensor:
        self._age += 1
        if self._age > 200:
            return WaitPolicy().act(obs, mask, episode_start, greedy)
        return super().act(obs, mask, episode_start, greedy)


def summary_of(world: World, player: type[WaitPolicy] | type[PlannerPolicy]) -> tuple[TownSummary, str]:
    """The summary of a policy without a network, and its sentences."""

    def evaluate(world: World) -> TownEvaluation:
        return evaluate_town(player(world) if issubclass(player, PlannerPolicy) else player(), world, 5, 0)

    random = evaluate_town(RandomPolicy(Discrete(world.actions), torch.Generator().manual_seed(0)), world, 20, 0)
    longer = with_limit(world, LIMIT_FACTOR * world.spec.max_steps)
    found = TownSummary(random, evaluate(world), evaluate(longer))
    return found, "\n".join(found.sentences())


def test_summary_of_an_agent_that_works_and_survives() -> None:
    found, said = summary_of(with_limit(load_world("town"), 200), PlannerPolicy)
    assert f"A random agent survives {found.random.mean_length:.0f} of 200 steps." in said
    assert "At its last and best checkpoint, this agent survives 200: all of its 5 episodes reach the limit." in said
    assert "With the limit raised to 800 it survives 800 steps; all of its episodes reach that limit." in said
    assert "It earns money in all of these episodes." in said
    assert "Causes of death" not in said


def test_summary_of_a_passive_agent_names_its_cause_of_death() -> None:
    found, said = summary_of(load_world("town"), WaitPolicy)
    assert f"this agent survives {found.trained.mean_length:.0f}: none of its 5 episodes reach the limit." in said
    assert f"Causes of death: no {found.trained.causes[0]} (5)." in said
    assert "It has not learned to work" in said


def test_summary_names_the_cause_of_death_beyond_the_limit() -> None:
    found, said = summary_of(with_limit(load_world("town"), 200), LateWaitPolicy)
    assert found.trained.survived == 1
    assert "Causes of death:" not in said
    assert f"Causes of death with the raised limit: no {found.with_raised_limit.causes[0]} (5)." in said


def test_summary_names_the_best_checkpoint_if_it_is_another() -> None:
    """The results are those of the last one, and they say so."""
    found, said = summary_of(load_world("town-l0"), WaitPolicy)
    assert "--which" not in said
    again = replace(found, best=BestCheckpoint(12_000, "length", 298.25))
    assert again.sentences()[1].startswith("At its last checkpoint, this agent survives")
    last = again.sentences()[-1]
    assert "`eval` and `play` use the best checkpoint (length 298.2 at 12,000 env_steps)" in last
    assert "--which last" in last
    assert "worse" not in last
    fallen = replace(found, best=BestCheckpoint(12_000, "length", 298.25, 91.5)).sentences()[-1]
    assert "The last evaluation (length 91.5) is far below the best (298.2)." in fallen


def test_summary_samples_all_evaluations_or_none() -> None:
    """Episodes with sampled and with greedy actions must not be compared."""
    loaded = tiny("town:ppo", "evaluation.deterministic=false", "change.max_steps=60")
    t, world, wanted = build_training(loaded), loaded.worlds.evaluation, loaded.recipe.evaluation
    agent = evaluate_town(t.agent.policy(), world, 5, wanted.seed, greedy=False)
    found = loaded.task.summarize(t.agent.policy(), loaded.recipe, agent, agent, None)
    assert isinstance(found, TownSummary)
    drawn = evaluate_town(t.agent.policy(), with_limit(world, 240), 5, wanted.seed, greedy=False)
    assert found.with_raised_limit.returns.tolist() == drawn.returns.tolist()
    assert found.with_raised_limit.uses.tolist() == drawn.uses.tolist()
    greedy = evaluate_town(t.agent.policy(), with_limit(world, 240), 5, wanted.seed)
    assert found.with_raised_limit.uses.tolist() != greedy.uses.tolist()
    assert "with sampled actions" in found.sentences()[1]


def test_summary_of_a_town_without_money_omits_work() -> None:
    _, said = summary_of(load_world("town-l0"), WaitPolicy)
    assert "work" not in said


def test_raising_the_limit_changes_nothing_else() -> None:
    world = load_world("town")
    longer = with_limit(world, 2000)
    assert longer.spec.max_steps == 2000
    assert longer.interface_hash == world.interface_hash
    assert longer.spec.model_copy(update={"max_steps": 500}) == world.spec


def test_raised_limit_need_not_be_reachable() -> None:
    world = load_world("town-l0", ["meters.energy.decay=.01"])  # the money lasts for 600 steps
    assert with_limit(world, LIMIT_FACTOR * world.spec.max_steps).spec.max_steps == 1200
