"""The end of a training in sentences: heir, worker, or neither."""

from __future__ import annotations

import torch
from torch import Tensor

from townlet import load_world
from townlet.train.evaluate import Evaluated, Planning, Uniform, evaluate
from townlet.train.summary import LIFTED, Summary, lift
from townlet.world.tables import World


class Waiting:
    """Waits for the end."""

    def start(self, rows: int) -> None:
        pass

    def act(self, obs: Tensor, mask: Tensor | None, fresh: Tensor | None = None, greedy: bool = True) -> Tensor:
        assert mask is not None
        return torch.full((len(mask),), mask.shape[1] - 1)


def summary_of(world: World, player: type[Waiting] | type[Planning]) -> tuple[Summary, str]:
    """What is said of a player that is no network."""

    def measured(place: World) -> Evaluated:
        return evaluate(Waiting() if player is Waiting else Planning(place), place, 5, 0)

    random = evaluate(Uniform(torch.Generator().manual_seed(0)), world, 20, 0)
    longer = lift(world, LIFTED * world.spec.max_steps)
    found = Summary(random, measured(world), measured(longer))
    return found, "\n".join(found.sentences())


def test_who_works_for_a_sustained_life_is_told_so() -> None:
    found, said = summary_of(load_world("town"), Planning)
    assert f"A random agent lives {found.random.mean:.0f} of 500 steps." in said
    assert "This one lives 500: all of 5 lives reach the limit." in said
    assert "With the limit lifted to 2000 it lives 2000; all reach that too." in said
    assert "It works for its money, in all of these lives." in said
    assert "What ends its lives" not in said


def test_who_does_nothing_is_told_what_killed_it_and_that_it_does_not_work() -> None:
    found, said = summary_of(load_world("town"), Waiting)
    assert f"This one lives {found.agent.mean:.0f}: none of 5 lives reach the limit." in said
    assert f"What ends its lives: no {found.agent.causes[0]} (5)." in said
    assert "It has not learned to work" in said


def test_a_town_without_money_is_not_asked_about_work() -> None:
    _, said = summary_of(load_world("town-l0"), Waiting)
    assert "work" not in said


def test_lifting_the_limit_changes_nothing_else() -> None:
    world = load_world("town")
    longer = lift(world, 2000)
    assert longer.spec.max_steps == 2000
    assert longer.interface_hash == world.interface_hash
    assert longer.spec.model_copy(update={"max_steps": 500}) == world.spec
