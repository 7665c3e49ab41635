"""Answers to "why not …?", and the state from which they are played out."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from townlet.errors import TownletError
from townlet.live import questions
from townlet.live.agents import PolicyActor, scripted_player
from townlet.live.counterfactuals import Option, OwnPolicy, Situation, player_of
from townlet.live.playback import PlayedEpisode
from townlet.live.protocol import Ask, QuestionAnswer
from townlet.live.questions import Kind, ordinal
from townlet.runs.folder import Run
from townlet.town.engines.engine import Engine
from townlet.town.planner import Player
from townlet.town.world.load import from_text, load
from townlet.town.world.tables import World
from townlet.train.api import load as load_policy


class ScriptedActor:
    output_kind: Any = "none"

    def __init__(self, player: Player, world: World) -> None:
        self.player, self.outputs = player, np.zeros(len(world.actions), np.float32)

    def act(self, engine: Engine, episode_start: bool) -> Any:
        return int(self.player.act(engine)[0]), self.outputs


@cache
def played(name: str, kind: str, steps: int, seed: int = 3) -> PlayedEpisode:
    world = load(name)
    episode = PlayedEpisode(world, ScriptedActor(scripted_player(kind, world, seed), world), seed, "x", 0, "Ada")
    episode.reach(steps)
    return episode


@pytest.mark.parametrize("name", ["town", "town-l3", "town-shuffled", "town-house", "town-aspatial"])
@pytest.mark.parametrize("kind", ["planner", "random"])
def test_play_goes_on_exactly_from_a_recorded_timestep(name: str, kind: str) -> None:
    """Taking the recorded actions from any timestep leads through the recorded states."""
    episode = played(name, kind, 60)
    r, last = episode.recording, len(episode.recording)
    for timestep in (0, 1, last // 2, last - 1):
        engine = Situation(episode.world, r, timestep, "none").engine(3)
        for t in range(timestep, last):
            engine.step(np.full(3, r.actions[t], np.int64))
            state = engine.peek()
            assert np.array_equal(state["meters"], np.repeat(r.meters[t + 1 : t + 2], 3, axis=0))
            assert [int(state[field][2]) for field in ("cell", "hour", "age", "progress")] == [
                int(getattr(r, field)[t + 1]) for field in ("cell", "hour", "age", "progress")
            ]


def ask(episode: PlayedEpisode, timestep: int, player: Player | None = None, **about: Any) -> QuestionAnswer:
    situation = Situation(episode.world, episode.recording, timestep, episode.output_kind)
    return questions.answer(
        situation,
        player or player_of("planner", None, episode.world),
        Ask(timestep=timestep, **about),
        "policy" if player else "planner",
    )


def test_deadly_and_harmless_choices_are_told_apart() -> None:
    """An agent with little energy beside a bed: using it saves its life, walking away does not."""
    world = from_text(
        "extends: town-l0\nmap: {start: [2, 2]}\nmeters: [{name: energy, start: .012}, {name: money, start: .5}]\n"
    )
    bed = int(world.tables.first_interact)
    episode = PlayedEpisode(world, ScriptedActor(scripted_player("planner", world, 0), world), 1, "x", 0, "Ada")
    episode.reach(1)
    assert int(episode.recording.actions[0]) == bed
    answer = ask(episode, 0, action=0)
    own, other = answer.options
    assert (own["label"], other["label"]) == ("use the bed", "move up")
    assert own["chance"] > 0.9
    assert other["chance"] == 0
    assert answer.question == "Why not move up at step 0?"
    assert answer.sentences == [
        f"If it moved up now, it would survive the next 100 steps in 0% of 512 trials; with its own choice, in "
        f"{own['chance']:.0%}.",
        "So its own choice is better.",
    ]


def test_place_is_reached_and_used() -> None:
    episode = played("town", "planner", 30)
    answer = ask(episode, 0, affordance="LuxuryBed")
    assert answer.question == "Why not the luxury bed at step 0?"
    cell = int(episode.recording.cell[0])
    steps = abs(cell % 8 - 2) + abs(cell // 8 - 1)
    text = f"go to the luxury bed ({steps} step{'s' * (steps != 1)}) and use it" if steps else "use the luxury bed"
    assert answer.options[1]["label"] == text
    assert ask(episode, 0, affordance="Bar").options[1]["label"].startswith("go to the bar (")


def test_closed_and_unaffordable_places_are_explained() -> None:
    night = played("town-l3", "planner", 40)
    tables, r, closed = night.world.tables, night.recording, set()
    for k, name in enumerate(night.world.affordances):
        answer = ask(night, 20, affordance=name)
        found = re.search(r"\((\d+) step", answer.options[1]["label"])
        hour = (int(r.hour[20]) + int(found[1] if found else 0)) % 24
        shown = any("It is closed at that time" in sentence for sentence in answer.sentences)
        assert shown == (not tables.open_at[k, hour])
        closed.add(shown)
    assert closed == {True, False}
    world = from_text("extends: town\nmeters: [{name: money, start: 0}]\n")
    poor = PlayedEpisode(world, ScriptedActor(scripted_player("planner", world, 0), world), 1, "x", 0, "Ada")
    poor.reach(2)
    price = "The bar costs $15, the agent has $0."
    assert ask(poor, 0, affordance="Bar").sentences[0] == price
    poor.recording.cell[0] = poor.recording.cell_of[world.affordances.index("Bar")]  # the agent stands there
    poor.recording.mask[0][world.tables.first_interact] = False
    assert ask(poor, 0, action=int(world.tables.first_interact)).sentences[0] == price


@pytest.mark.parametrize("about", [{"affordance": "Cinema"}, {"action": 77}])
def test_impossible_questions_are_refused(about: dict[str, Any]) -> None:
    with pytest.raises(TownletError, match=r"there is no Cinema here|this action does not exist"):
        ask(played("town", "planner", 30), 0, **about)
    with pytest.raises(TownletError, match="has not been played yet"):
        ask(played("town", "planner", 30), 10_000, action=0)


def test_policy_plays_on_as_it_would_have_done(run: Run) -> None:
    """Its own choice is that of the episode, and its rating of the action is part of the answer."""
    trained = load_policy(run)
    world = trained.world
    episode = PlayedEpisode(world, PolicyActor(trained, 0.0, 1), 1, "x", 0, "Ada")
    episode.reach(10)
    answer = ask(episode, 4, player=OwnPolicy(trained), action=int(episode.recording.actions[4]))
    assert len(answer.options) == 1  # both would be the same
    assert answer.question.startswith("Why ")
    assert not answer.question.startswith("Why not ")
    assert answer.sentences[0].startswith("That is what it does: it survives the next 100 steps in ")
    assert "a random one in 5% of the steps" in answer.sentences[1]
    assert any("the agent rates it first" in sentence for sentence in answer.sentences)


def test_place_first_is_told_as_a_condition() -> None:
    episode = played("town", "planner", 30)
    sentence = ask(episode, 0, affordance="Bar").sentences[0]
    assert re.fullmatch(
        r"If it went to the bar first \(\d+ steps?\), it would survive the next 100 steps in \d+% of 512 trials; "
        r"with its own choice, in \d+%\.",
        sentence,
    )


def option(chance: float, steps: float = 80.0) -> Option:
    return Option("wait", "waited now", chance, steps, 30.0)


def test_only_differences_beyond_chance_are_concluded() -> None:
    """Between equal options of 50%, a difference of 5 points is common."""
    assert conclusion(option(0.5), option(0.55)) == "That is no clear difference."
    assert conclusion(option(0.5), option(0.6)).startswith("So the other choice would have been better")
    assert conclusion(option(0.6), option(0.5)) == "So its own choice is better."
    assert conclusion(option(0.98), option(1.0)).startswith("So the other choice")
    assert conclusion(option(1.0), option(1.0)) == "That is no clear difference."
    assert conclusion(option(0.0, 40), option(0.0, 60)) == "It would live 20 steps longer on average."
    assert conclusion(option(0.0, 40), option(0.0, 42)) == "That is no clear difference."
    low, high = option(0.5).interval
    assert 0.45 < low < 0.46 < 0.54 < high < 0.55
    assert option(0.0).interval[0] == 0
    assert option(1.0).interval[1] == 1


def conclusion(own: Option, other: Option, kind: Kind = "policy") -> str:
    return questions._comparison([own, other], kind)[1]


def test_conclusion_fits_the_player() -> None:
    found = {kind: conclusion(option(0.2), option(0.9), kind) for kind in questions.REASONS}
    assert found["policy"].endswith("the agent has not learned this yet.")
    assert all("learn" not in text for kind, text in found.items() if kind != "policy")
    assert conclusion(option(0.9), option(0.2), "human") == "So your own choice is better."
    assert questions._comparison([option(0.2), option(0.9)], "human")[0].startswith("If you waited now, you would")


def test_ordinals() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 101, 111)] == [
        "first", "second", "third", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "101st", "111th",
    ]  # fmt: skip


def test_question_is_interrupted() -> None:
    class Left(Exception):
        pass

    def leave() -> None:
        raise Left

    episode = played("town", "planner", 30)
    situation = Situation(episode.world, episode.recording, 0, "none")
    with pytest.raises(Left):
        questions.answer(
            situation, player_of("planner", None, episode.world), Ask(timestep=0, action=0), "planner", leave
        )
