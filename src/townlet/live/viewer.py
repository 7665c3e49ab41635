"""One viewer of the page: what it watches, its playbacks, and its messages."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from townlet.agents.agent import Interrupt
from townlet.errors import TownletError
from townlet.live import protocol, questions, world_editing
from townlet.live.agent_episodes import AgentEpisodes, EpisodeSeeds, LoadedAgent, distinguish
from townlet.live.agents import AgentChoice, HumanActor, HumanChoice, PolicyChoice
from townlet.live.counterfactuals import Situation, player_of
from townlet.live.hub import Hub
from townlet.live.messages import FRAME_RATE, Message, Side
from townlet.live.playback import (
    MAX_PLAYED_STEPS,
    EpisodeSource,
    Playback,
    PlayedEpisode,
    TownEpisode,
    advance_together,
)
from townlet.live.protocol import ClientMessage
from townlet.live.watched_run import WatchedRun, WatchedTownRun
from townlet.live.world_check import check_world
from townlet.town.world.tables import World
from townlet.web.limits import TokenBucket
from townlet.web.mailbox import Mailbox

LOG: Final = logging.getLogger(__name__)
DEFAULT_SPEED: Final = 5.0  # steps per second
MAX_PREVIEW_STEPS: Final = 5000  # of an episode in an edited world
WATCH_RATE, WATCH_BURST = 2.0, 8.0  # changes of agents per second, and at once
EDIT_RATE, EDIT_BURST = 4.0, 16.0  # checks of edited worlds per second, and at once
VERDICT_DELAY: Final = 0.3  # seconds without further edits before a world is played
NOT_SUBSCRIBED: Final = protocol.Error(what="no run is being watched", fix="subscribe to a run first")


class Viewer:
    """State of one connection. No method blocks: messages go to the mailbox, and policies are loaded in a thread."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.mailbox = hub, Mailbox()
        self.run: WatchedRun | None = None
        self.subscription: protocol.Subscribe | None = None
        self.follows_training = False  # it shows the playback that all viewers of a training run share
        self.playbacks: list[Playback] = []  # one, or two side by side; empty while following training
        self._agents: list[Any] = [PolicyChoice()]  # the `AgentChoice` of each side
        self._edited_world: World | None = None
        self._sides: list[AgentEpisodes] = []  # the sources of the playbacks, if agents play
        self._seeds, self._watch_limit = EpisodeSeeds(), TokenBucket(WATCH_RATE, WATCH_BURST)
        self._edit_limit = TokenBucket(EDIT_RATE, EDIT_BURST)
        self._last_frame = 0.0  # time of the last frame
        self._resampled = self._new_playback(lambda: None)  # the shared playback at this viewer's lower frame rate
        self._tasks: dict[str, asyncio.Task[None]] = {}  # the last computation of each kind
        self._edit: protocol.EditWorld | None = None  # the newest request, while an earlier one is checked

    def send(self, *messages: Message) -> None:
        """Queue messages, in order."""
        self.mailbox.post_event(*(message.model_dump_json() for message in messages))

    def _send_playback(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._queue(message, message.model_dump_json())

    def _queue(self, message: Message, text: str) -> None:
        if isinstance(message, protocol.Frame):
            self.mailbox.post_latest(("frame", message.side), text)
        else:
            self.mailbox.post_event(text)

    def _new_playback(
        self, source: EpisodeSource, side: Side = 0, speed: float = DEFAULT_SPEED, playing: bool = True
    ) -> Playback:
        return Playback(source, side, speed, playing, delivered=lambda: not self.mailbox.is_pending(("frame", side)))

    def tick(self, texts: Sequence[str], shared: Sequence[tuple[Message, str]]) -> None:
        """Send the run's new messages, and the next frame (from `shared` if following training) if it is due."""
        self.mailbox.post_event(*texts)
        assert self.subscription is not None
        assert self.run is not None
        now = time.monotonic()
        elapsed = now - self._last_frame
        if elapsed < 1 / self.subscription.rate - 0.5 / FRAME_RATE:
            return
        self._last_frame = now
        if self.subscription.rows and self.run.rows_overview:
            self.mailbox.post_latest("rows_overview", self.run.rows_overview)
        if not self.follows_training:
            try:
                self._send_playback(advance_together(self.playbacks, elapsed))
            except TownletError as error:
                self._refuse(error)
                self.playbacks, self._sides = [], []
        elif self.subscription.rate == FRAME_RATE:
            for message, text in shared:
                self._queue(message, text)
        else:
            self._send_playback(self._resampled.follow(self._town.playback))

    @property
    def _town(self) -> WatchedTownRun:
        assert self.run is not None
        return self.run.town()

    def leave(self) -> None:
        if self.run:
            self.hub.leave(self.run.run.name, self)
        for task in self._tasks.values():
            task.cancel()
        self.run, self.follows_training, self.playbacks = None, False, []

    async def receive(self, message: ClientMessage) -> None:
        """Handle a message; failures are answered with an error. An edited world is checked in the background."""
        if isinstance(message, protocol.EditWorld):
            self._edit = message
            if (check := self._tasks.get("check")) is None or check.done():
                self._tasks["check"] = asyncio.get_running_loop().create_task(self._check_edits())
            return
        if (check := self._tasks.get("check")) is not None:
            await asyncio.wait([check])  # messages take effect in their order
        await self._attempt(self._handle(message), f"the server failed to handle a message of type {message.type}")

    async def _attempt(self, action: Awaitable[None], problem: str, number: int | None = None) -> None:
        """Await an action; a failure is sent as an error, an unexpected one as this problem."""
        try:
            await action
        except TownletError as error:
            self._refuse(error, number)
        except Exception:  # an error in this program
            LOG.exception(problem)
            fix = "try again; the log of the server has the details"
            self.send(protocol.Error(what=problem, fix=fix, number=number))

    def _refuse(self, error: TownletError, number: int | None = None) -> None:
        first = error.diagnostics[0]
        self.send(protocol.Error(what=first.what, fix=first.fix, number=number))

    async def _handle(self, message: ClientMessage) -> None:
        match message:
            case protocol.Subscribe():
                await self._subscribe(message)
            case _ if self.run is None:
                self.send(NOT_SUBSCRIBED)
            case protocol.Play() | protocol.Pause():
                for playback in self._own_playbacks():  # an agent beside the viewer's waits for the viewer
                    playback.playing = isinstance(message, protocol.Play) and not self._human_actors()
            case protocol.StepBy() | protocol.Seek():
                self._move(message)
            case protocol.SetSpeed():
                for playback in self._own_playbacks():
                    playback.speed = message.speed
            case protocol.Select():
                self._select(message)
            case protocol.Reset():
                await self._reset(message.seed)
            case protocol.Watch():
                if not self._watch_limit.take():
                    raise TownletError("the agents were changed too often", "wait a second and choose again")
                await self._play(message.agents)
            case protocol.Act():
                self._act(message.action)
            case protocol.Ask():
                await self._ask(message)

    def _apply(self, action: Callable[[Playback], list[Message]]) -> None:
        for playback in self._own_playbacks():
            self._send_playback(action(playback))

    def _own_playbacks(self) -> list[Playback]:
        """This viewer's playbacks; a viewer who followed training continues from there independently."""
        if self.follows_training:
            town, self.follows_training = self._town, False
            playback = self._new_playback(town.next_episode, speed=town.playback.speed)
            playback.copy_position(town.playback)
            self.playbacks = [playback]
        return self.playbacks

    def _move(self, message: protocol.StepBy | protocol.Seek) -> None:
        """Show another timestep, the same on both sides. A viewer who plays drops own actions; nothing runs ahead."""
        playbacks, last = self._own_playbacks(), sys.maxsize
        goal = max((playback.goal for playback in playbacks), default=0)  # on the side that lives longer
        goal = goal + message.by if isinstance(message, protocol.StepBy) else message.timestep
        for episode, actor in self._human_actors():
            actor.clear()
            last = min(last, episode.known - 1)
        for playback in playbacks:
            playback.playing = playback.playing and not isinstance(message, protocol.StepBy)
            self._send_playback(playback.seek(min(goal, last)))

    async def _reset(self, seed: int | None) -> None:
        """Show another episode on both sides, in the same town."""
        if not self._sides:
            self._apply(lambda playback: playback.show(playback.source() or playback.episode))
            return
        agents = [await side.reload() for side in self._sides]
        self._seeds.restart(self._seeds.first + 1 if seed is None else seed)
        for playback, side, agent in zip(self.playbacks, self._sides, agents, strict=False):
            self._show(playback, side.restart(agent))

    def _show(self, playback: Playback, episode: TownEpisode | None) -> None:
        self._send_playback(playback.show(episode))

    async def _subscribe(self, subscription: protocol.Subscribe) -> None:
        """Watch a run: send its history first, then start playback."""
        run = self.hub.join(subscription.run, self)
        if self.run is not run:
            history = self._history(run)
            previous, self.run = self.run, run
            if previous and previous.run.name != run.run.name:
                self.hub.leave(previous.run.name, self)
            self.send(*history)
            self._agents = [PolicyChoice()]
        self._edited_world = None
        self.subscription, self.follows_training = subscription, False
        self.playbacks, self._sides = [], []
        self._resampled = self._new_playback(lambda: None)
        if subscription.source == "training":
            town, self.follows_training = self._town, True
            if subscription.rate == FRAME_RATE:
                self._send_playback(town.playback.so_far())
        elif subscription.source == "checkpoint":
            await self._play(self._agents)
        elif subscription.source == "recording":
            self._select(protocol.Select(recording=self._town.newest_recording()))
        self._last_frame = time.monotonic()  # preparing it may have taken a while

    def _history(self, run: WatchedRun) -> list[Message]:
        """Status, metrics and checkpoints of a run; if they cannot be read, this viewer leaves the run."""
        try:
            return [run.status(), *run.history(), *run.checkpoints()]
        except BaseException:
            if self.run and self.run.run.name == run.run.name:
                self.run = None
            self.hub.leave(run.run.name, self)
            raise

    def _select(self, selection: protocol.Select) -> None:
        """Show a recorded episode, or the episodes of one row of the training."""
        town, row, recording = self._town, selection.row, selection.recording
        episode = town.episode_of_row(row) if recording is None else town.recorded_episode(recording)
        if episode is None:
            raise TownletError(f"no episode of row {row} has ended yet", "wait for one to end")

        def newer() -> TownEpisode | None:
            newest = town.episode_of_row(row) if recording is None else None
            return None if newest is playback.episode else newest

        playback = self._new_playback(newer)
        self.follows_training, self.playbacks, self._sides = False, [playback], []
        self._show(playback, episode)

    # Agents

    async def _play(
        self, choices: Sequence[AgentChoice], world: World | None = None, first: Sequence[Message] = ()
    ) -> None:
        """Show episodes of agents in the same town; `first` is sent once all are known to fit the world."""
        edited, run = world or self._edited_world, self._town
        sides = [await self._episodes(choice, run, edited) for choice in choices]
        if len(sides) == 2:
            distinguish(*sides)
        self._agents, self._edited_world, self._sides = list(choices), edited, sides
        self.send(*first)
        self.follows_training, previous = False, self.playbacks
        speed, playing = (previous[0].speed, previous[0].playing) if previous else (DEFAULT_SPEED, True)
        playing = playing and not self._has_human
        numbers: tuple[Side, Side] = (0, 1)
        self._seeds.restart(self._seeds.first)
        self.playbacks = [
            self._new_playback(source, side, speed, playing) for side, source in zip(numbers, sides, strict=False)
        ]
        self._apply(lambda playback: playback.show(playback.source()))

    async def _episodes(self, choice: Any, run: WatchedTownRun, edited: World | None) -> AgentEpisodes:
        """The episodes of an agent in the world of a run, or in an edited one."""
        world = edited or run.world

        async def load() -> LoadedAgent:
            return await self.hub.agents.load(choice, run.run, world)

        note, limit = (", in your edited world", MAX_PREVIEW_STEPS) if edited else ("", MAX_PLAYED_STEPS)
        return AgentEpisodes(await load(), load, world, self._seeds, note, lambda: run.record, limit)

    @property
    def _has_human(self) -> bool:
        return any(isinstance(choice, HumanChoice) for choice in self._agents)

    def _act(self, action: int) -> None:
        """Take the viewer's action; an agent beside takes a step, too."""
        if not self._has_human:
            raise TownletError("no agent is played by you", "choose yourself as one of the agents")
        for episode, actor in self._human_actors():
            if action >= len(episode.world.actions):
                raise TownletError(f"there is no action {action}", "see `actions` of the world")
            if not episode.over:
                actor.clear()
                actor.press(action)
                self._apply(partial(Playback.seek, timestep=episode.known))  # also if an earlier step is on screen

    def _human_actors(self) -> list[tuple[PlayedEpisode, HumanActor]]:
        """The episodes on screen that the viewer plays."""
        episodes = [playback.episode for playback in self.playbacks if isinstance(playback.episode, PlayedEpisode)]
        return [(episode, episode.actor) for episode in episodes if isinstance(episode.actor, HumanActor)]

    # Questions and edited worlds, computed in a thread

    def _compute(self, kind: str, work: Callable[[Interrupt], Message], delay: float = 0.0) -> None:
        """Compute a message in a thread and send it; a later computation of the same kind replaces an earlier one."""
        if kind in self._tasks:
            self._tasks[kind].cancel()

        async def send_result() -> None:
            self.send(await self.hub.computations.run(work))

        async def compute() -> None:
            await asyncio.sleep(delay)
            await self._attempt(send_result(), f"the {kind} could not be computed")

        self._tasks[kind] = asyncio.get_running_loop().create_task(compute())

    async def _ask(self, request: protocol.Ask) -> None:
        playback = next((p for p in self._own_playbacks() if p.side == request.side), None)
        if playback is None or playback.episode is None:
            raise TownletError("there is nothing to ask about yet", "wait for an episode")
        episode = playback.episode
        if isinstance(episode, PlayedEpisode):
            agent = self._sides[request.side].agent
        else:  # an episode of training: its run's latest policy answers
            agent = await self.hub.agents.load(PolicyChoice(), self._town.run, episode.world)
        situation = Situation(episode.world, episode.recording, request.timestep, episode.output_kind, episode.over)

        def answer(check_interrupt: Interrupt) -> Message:
            player = player_of(agent.choice.kind, agent.trained, episode.world)
            return questions.answer(situation, player, request, agent.choice.kind, check_interrupt)

        self._compute("answer", answer)

    def _training_worlds(self) -> list[World]:
        """The worlds in which the chosen policies were trained; people and scripted agents can play anywhere."""
        if self._sides:
            return [side.agent.trained.world for side in self._sides if side.agent.trained is not None]
        return [self.run.world] if isinstance(self.run, WatchedTownRun) else []

    async def _check_edits(self) -> None:
        """Check the last edited world. Meanwhile only the newest one waits: it replaces those before it."""
        while self._edit is not None:
            while not self._edit_limit.take():
                await asyncio.sleep(1 / EDIT_RATE)
            request, self._edit = self._edit, None
            await self._attempt(self._check_edit(request), "the world could not be checked", request.number)

    async def _check_edit(self, request: protocol.EditWorld) -> None:
        """Check an edited world; with `preview`, show the current agents in it if it is valid."""
        known = self._training_worlds()
        checked, world = await self.hub.checks.run(lambda _: check_world(request, known))
        if world is None or not request.preview:
            self.send(checked)
        elif self.run is None:
            self.send(NOT_SUBSCRIBED)
        else:
            await self._attempt(self._play(self._agents, world, [checked]), "the world could not be shown")
        if world is None:
            return

        def verdict(_: Interrupt) -> Message:
            livable, sentences = world_editing.verdict(world)
            return protocol.WorldVerdict(number=request.number, livable=livable, sentences=sentences)

        self._compute("verdict", verdict, VERDICT_DELAY)
