"""Episodes of agents: seeds, random streams, limits, and loading apart from the event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from live.conftest import Page
from townlet.live.agent_episodes import FIRST_SEED, SEED_STEP, AgentEpisodes, AgentLoader, EpisodeSeeds
from townlet.live.agents import AgentChoice, PolicyChoice, ScriptedChoice
from townlet.live.playback import MAX_STEPS_AT_ONCE, Playback, PlayedEpisode, advance_together
from townlet.live.protocol import EpisodeStart
from townlet.runs import checkpoint
from townlet.runs.folder import Run
from townlet.town.world.load import from_text, load
from townlet.town.world.tables import World

EASY = """
extends: town-l0
max_steps: 10000000
lethal: [energy]
meters: [{name: energy, decay: 0, move: .000001, wait: 0}]
"""


def sources(run: Run, world: World, *choices: AgentChoice, limit: int = 20_000) -> list[AgentEpisodes]:
    """Sources of episodes of agents that share their seeds."""
    loader, seeds = AgentLoader(run.path.parent), EpisodeSeeds()

    async def load_all() -> list[AgentEpisodes]:
        async def reload() -> Any:
            raise AssertionError("not needed")

        return [AgentEpisodes(await loader.load(c, run, world), reload, world, seeds, limit=limit) for c in choices]

    try:
        return asyncio.run(load_all())
    finally:
        loader.close()


def played(source: AgentEpisodes, steps: int) -> PlayedEpisode:
    episode = source()
    assert isinstance(episode, PlayedEpisode)
    episode.reach(steps)
    return episode


def test_agent_of_another_world_plays_without_seeing_new_places(run: Run) -> None:
    extended = from_text(
        "extends: town\naffordances: [{name: Library, cell: [3, 5], at_end: {mood: .1}}]\n", "extended"
    )
    (source,) = sources(run, extended, PolicyChoice(run="elder", checkpoint="best"))
    assert source.agent.label.startswith("elder, best checkpoint, after ")
    assert source.agent.label.endswith(", cannot see Library")
    assert len(played(source, 200).recording) == 200, "the elder should survive here"


def test_seed_of_a_reset_is_that_of_the_link(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="checkpoint")
    first = page.receive("episode_start")
    assert first["seed"] == FIRST_SEED
    for _ in range(2):
        page.send("reset", seed=FIRST_SEED)
        again = page.receive("episode_start")
        assert (again["seed"], again["cell_of"]) == (FIRST_SEED, first["cell_of"])
    page.send("reset")
    assert page.receive("episode_start")["seed"] == FIRST_SEED + 1
    newest = checkpoint.latest(run.checkpoints)
    assert newest is not None
    assert (first["checkpoint"], first["env_steps"]) == (newest.name, newest.env_steps)
    page.send("watch", agents=[{"kind": "policy", "checkpoint": first["checkpoint"]}, {"kind": "random"}])
    assert page.receive("episode_start")["checkpoint"] == first["checkpoint"]
    assert page.receive("episode_start")["checkpoint"] is None


def test_reset_shows_one_town_on_both_sides(page: Page, run: Run) -> None:
    """Also after episodes of different lengths."""
    page.send("subscribe", run=run.name, source="none")
    page.send("watch", agents=[{"kind": "planner"}, {"kind": "random"}])
    assert {page.receive("episode_start")["seed"] for _ in range(2)} == {FIRST_SEED}
    page.send("set_speed", speed=200)
    assert page.receive("episode_start")["seed"] == FIRST_SEED + SEED_STEP
    page.send("pause")
    page.send("ask", timestep=10**7, action=0)
    page.receive("error")  # the episodes that were on their way have arrived
    page.send("reset")
    starts = [page.receive("episode_start") for _ in range(2)]
    assert [start["side"] for start in starts] == [0, 1]
    assert {start["seed"] for start in starts} == {FIRST_SEED + 1}
    assert starts[0]["cell_of"] == starts[1]["cell_of"]


def test_sides_start_together_and_have_names_of_their_own(page: Page, run: Run) -> None:
    newest = checkpoint.latest(run.checkpoints)
    assert newest is not None
    untrained = checkpoint.paths(run.checkpoints)[0].name
    agents = [{"kind": "policy", "checkpoint": newest.name}, {"kind": "policy", "checkpoint": untrained}]
    page.send("subscribe", run=run.name, source="none")
    page.send("watch", agents=agents)
    names = [page.receive("episode_start")["name"] for _ in range(2)]
    assert names[0].endswith(f" · after {newest.env_steps:,} steps")
    assert names[0].split(" · ")[0] == names[1].split(" · ")[0]
    page.send("watch", agents=[{"kind": "planner"}, {"kind": "random"}])
    assert {page.receive("episode_start")["seed"] for _ in range(2)} == {FIRST_SEED}
    page.send("set_speed", speed=200)
    starts = [page.receive("episode_start") for _ in range(2)]
    assert [start["seed"] for start in starts] == [FIRST_SEED + SEED_STEP] * 2
    assert [start["side"] for start in starts] == [0, 1]


def test_next_episodes_wait_for_the_longer_one(run: Run) -> None:
    """Also if only one of the agents has died."""
    pair = [sources(run, load("town"), ScriptedChoice(kind="random"), limit=limit)[0] for limit in (20, 60)]
    playbacks = [Playback(pair[0], 0, speed=100), Playback(pair[1], 1, speed=100)]
    for playback in playbacks:
        assert isinstance(playback.show(playback.source())[0], EpisodeStart)
    started = []
    for tick in range(100):
        starts = [one for one in advance_together(playbacks, 0.1) if isinstance(one, EpisodeStart)]
        if starts:
            started.append((tick, len(starts)))
    assert len(started) > 1
    assert {count for _, count in started} == {2}


def test_side_that_falls_behind_joins_the_town_of_the_other() -> None:
    seeds = EpisodeSeeds()
    ahead = behind = -1
    for _ in range(4):
        ahead = seeds.following(ahead)
    behind = seeds.following(behind)
    assert (ahead, behind) == (3, 3)
    assert seeds.following(behind) == seeds.following(ahead) == 4
    seeds.restart(7)
    assert [seeds.at(seeds.following(-1)) for _ in range(2)] == [7, 7]
    seeds.restart(2**63 - 1)
    assert seeds.at(1) == SEED_STEP - 1


@pytest.mark.parametrize("kind", ["random", "policy"])
def test_random_actions_differ_between_episodes(run: Run, kind: str) -> None:
    newest = checkpoint.latest(run.checkpoints)
    assert newest is not None
    choice: AgentChoice = PolicyChoice(checkpoint=newest.name, epsilon=1.0)
    choice = ScriptedChoice(kind="random") if kind == "random" else choice
    (source,) = sources(run, load("town"), choice)
    episodes = [played(source, 12) for _ in range(3)]
    assert len({tuple(episode.recording.actions.tolist()) for episode in episodes}) == 3
    again = [played(source, 12) for source in sources(run, load("town"), choice)]
    assert np.array_equal(again[0].recording.actions, episodes[0].recording.actions)


def test_distant_seek_is_computed_in_parts(run: Run) -> None:
    """One call must not keep the server from others, however far a viewer jumps."""
    (source,) = sources(run, from_text(EASY), ScriptedChoice(kind="planner"))
    playback = Playback(source, playing=False)
    playback.show(source())
    playback.seek(10**7)
    assert playback.episode is not None
    assert len(playback.episode.recording) <= MAX_STEPS_AT_ONCE
    playback.seek(2 * MAX_STEPS_AT_ONCE + 50)
    for _ in range(10):
        before = len(playback.episode.recording)
        playback.advance(0.2)
        assert len(playback.episode.recording) - before <= MAX_STEPS_AT_ONCE
    assert playback.position == 2 * MAX_STEPS_AT_ONCE + 50


def test_endless_episode_ends_at_its_limit(run: Run) -> None:
    (source,) = sources(run, from_text(EASY), ScriptedChoice(kind="planner"), limit=120)
    episode = played(source, 10**7)
    assert (episode.over, len(episode.recording), episode.cause) == (True, 120, "time")
    assert episode.end_message().certificate[0].startswith("Survived all 120 steps")


def test_agents_cannot_be_changed_without_end(page: Page, run: Run) -> None:
    page.send("subscribe", run=run.name, source="none")
    for _ in range(20):
        page.send("watch", agents=[{"kind": "planner"}])
    assert "too often" in page.receive("error")["what"]


def test_own_action_is_taken_at_the_end_of_the_episode(page: Page, run: Run) -> None:
    """Also while an earlier step is on screen; nothing is left over for later."""
    page.send("subscribe", run=run.name, source="none")
    page.send("watch", agents=[{"kind": "human"}])
    page.receive("frame")
    for age in (1, 2, 3):
        page.send("act", action=4)
        assert page.receive("frame")["age"] == [age]
    page.send("step", by=-2)
    assert page.receive("frame")["age"] == [1]
    page.send("act", action=0)
    frame = page.receive("frame")
    assert (frame["age"], frame["action"][-1]) == ([2, 3, 4], 0)
    page.send("seek", timestep=10)
    assert page.receive("frame")["age"] == [4]  # a seek alone takes no action
    page.send("act", action=1)
    assert page.receive("frame")["age"] == [5]


def test_agent_beside_a_person_waits(page: Page, run: Run) -> None:
    """Nothing but an action of the person takes it further."""
    page.send("subscribe", run=run.name, source="none")
    page.send("watch", agents=[{"kind": "human"}, {"kind": "random"}])
    page.send("play")
    page.send("step", by=5)
    page.send("seek", timestep=30)
    page.send("act", action=4)
    page.send("ask", timestep=10**7, action=0)  # answered with an error, after all frames
    ages = {0: 0, 1: 0}
    while (message := page.receive("frame", "error"))["type"] == "frame":
        ages[message["side"]] = max(ages[message["side"]], *message["age"])
    assert ages == {0: 1, 1: 1}
