"""`townlet eval`: evaluate a trained agent on unseen episodes, next to a random agent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from townlet.cli import options
from townlet.cli.console import echo, err, out
from townlet.errors import TownletError

if TYPE_CHECKING:
    from rich.table import Table

    from townlet.tasks.comparison import Comparison, ResultTable
    from townlet.train.policies import TrainedPolicy


def evaluate(
    run: options.RunName,
    overrides: options.WorldOverrides = None,
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="Episodes per agent.")] = 100,
    seed: options.EvaluationSeed = None,
    layout: Annotated[
        Literal["fixed", "shuffled"] | None,
        typer.Option(
            metavar="fixed|shuffled", help="For towns: shuffled tests whether the agent only memorized the map."
        ),
    ] = None,
    world: Annotated[
        str | None,
        typer.Option(metavar="WORLD", help="Another world. The agent cannot see places that it was not trained with."),
    ] = None,
    which: options.Checkpoint = "best",
    sample: options.Sample = None,
    as_json: options.AsJson = False,
    allow_code: options.AllowCode = False,
    root: options.Root = options.ROOT,
) -> None:
    """Evaluate a trained agent.

    It plays unseen episodes. A random agent plays for comparison, and in towns a planner that knows the rules.
    """
    from townlet.tasks.transfer import transfer_note

    opened = options.open_run(run, root, for_policy=True)
    with err().status(f"{episodes} episodes per agent"):
        trained = options.load_policy(opened, which)
        eval_seed = trained.loaded.recipe.evaluation.seed + 1 if seed is None else seed
        greedy = trained.use_greedy(sample)
        if trained.loaded.recipe.gym is None:
            world_overrides = tuple(overrides or ())
            about, comparison = _compare_in_town(trained, world_overrides, world, layout, episodes, eval_seed, greedy)
        else:
            town_options = {"overrides of a world": overrides, "--world": world, "--layout": layout}
            about, comparison = _compare_in_gym(trained, town_options, episodes, eval_seed, greedy)
    if as_json:
        header = {"run": opened.name, "which": which, "env_steps": trained.env_steps, **about}
        print(json.dumps(header | {"seed": eval_seed, "greedy": greedy} | dict(comparison.metrics()), indent=2))
        return
    echo(opened.name, f"{trained.info['agent']}, {trained.label}, after {trained.env_steps:,} env_steps")
    if note := transfer_note(about.get("unobserved", ()), about.get("missing", ())):
        echo(f"It {note}: it was trained in {trained.world.name}.")
    for table in comparison.tables():
        out().print(_rich_table(table))
        echo("")
    for sentence in comparison.sentences():
        out().print(sentence, markup=False)


def _compare_in_town(
    trained: TrainedPolicy,
    overrides: tuple[str, ...],
    world_name: str | None,
    layout: str | None,
    episodes: int,
    seed: int,
    greedy: bool,
) -> tuple[dict[str, Any], Comparison]:
    """The world's name and layout for the JSON output, and the comparison."""
    from townlet.tasks.comparison import compare_town
    from townlet.tasks.experiment import evaluation_world

    world = evaluation_world(trained.loaded, overrides, world_name, layout)
    other_maps = layout == "shuffled" and world_name is None and trained.world.spec.map.layout == "fixed"
    training_map = evaluation_world(trained.loaded, overrides) if other_maps else None
    about: dict[str, Any] = {"world": world.name, "layout": world.spec.map.layout}
    trained = trained.in_world(world)
    if trained.unobserved:
        about["unobserved"] = list(trained.unobserved)
    if trained.missing:
        about["missing"] = list(trained.missing)
    trained.require_probabilities(greedy)
    return about, compare_town(trained.policy, world, episodes, seed, greedy=greedy, training_map=training_map)


def _compare_in_gym(
    trained: TrainedPolicy, town_options: dict[str, Any], episodes: int, seed: int, greedy: bool
) -> tuple[dict[str, Any], Comparison]:
    from townlet.tasks.gym import GymTask

    task = trained.loaded.task
    if given := [name for name, value in town_options.items() if value]:
        fix = "drop it; the agent is evaluated in the environment it was trained in"
        raise TownletError(f"{given[0]}: {task.name} is not a town", fix)
    assert isinstance(task, GymTask)
    trained.require_probabilities(greedy)
    return {"env": task.name}, task.compare(trained.policy, episodes, seed, greedy=greedy)


def _rich_table(table: ResultTable) -> Table:
    from rich.table import Table

    rich_table = Table(title=table.title, title_justify="left", box=None, pad_edge=False)
    rich_table.add_column(table.headings[0])
    for heading in table.headings[1:]:
        rich_table.add_column(heading, justify="right", no_wrap=True)
    for row in table.rows:
        rich_table.add_row(*row)
    return rich_table
