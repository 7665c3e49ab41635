"""One viewer of the page: what it watches, its playbacks, and its messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final

from townlet.errors import ConfigError, TownletError
from townlet.live import protocol, questions, world_editing
from townlet.live.agents import (
    SCRIPTED_LABELS,
    AgentChoice,
    HumanActor,
    HumanChoice,
    PolicyChoice,
    ScriptedChoice,
    make_actor,
)
from townlet.live.hub import Hub
from townlet.live.messages import FRAME_RATE, Message, Side
from townlet.live.names import first_name
from townlet.live.playback import EpisodeSource, Playback, PlayedEpisode, TownEpisode
from townlet.live.policy_cache import player_label
from townlet.live.protocol import ClientMessage
from townlet.live.watched_run import WatchedRun, WatchedTownRun, find_run
from townlet.live.world_view import world_json
from townlet.runs.checkpoint import Checkpoint
from townlet.runs.folder import Run
from townlet.town.world.tables import World
from townlet.train.policies import TrainedPolicy
from townlet.web.mailbox import Mailbox

DEFAULT_SPEED: Final = 5.0  # steps per second
FIRST_SEED: Final = 1  # seed of the first episode of an agent
SEED_STEP: Final = 1000  # between the seeds of successive episodes
VERDICT_DELAY: Final = 0.3  # seconds without further edits before a world is played
NOT_SUBSCRIBED: Final = protocol.Error(what="no run is being watched", fix="subscribe to a run first")


class Viewer:
    """State of one connection. No method blocks: all messages go to the mailbox."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.mailbox = hub, Mailbox()
        self.run: WatchedRun | None = None
        self.subscription: protocol.Subscribe | None = None
        self.follows_training = False  # it shows the playback that all viewers of a training run share
        self.playbacks: list[Playback] = []  # one, or two side by side; empty while following training
        self._agents: list[Any] = [PolicyChoice()]  # the `AgentChoice` of each side
        self._edited_world: World | None = None
        self._seed, self._resets = FIRST_SEED, 0  # the seed of the first episode after the last reset
        self._last_frame = 0.0  # time of the last frame
        self._resampled = self._new_playback(lambda: None)  # the shared playback at this viewer's lower frame rate
        self._tasks: dict[str, asyncio.Task[None]] = {}  # the last computation of each kind

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
            if not self._attempt(self._apply, lambda playback: playback.advance(elapsed)):
                self.playbacks = []
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

    def receive(self, message: ClientMessage) -> None:
        """Handle a message; failures are answered with an error."""
        self._attempt(self._handle, message)

    def _attempt(self, action: Callable[..., None], *arguments: Any) -> bool:
        """Call an action; returns whether it succeeded, otherwise an error is sent."""
        try:
            action(*arguments)
        except (TownletError, ConfigError) as error:
            first = error.diagnostics[0]
            self.send(protocol.Error(what=first.what, fix=first.fix))
            return False
        return True

    def _handle(self, message: ClientMessage) -> None:
        match message:
            case protocol.Subscribe():
                self._subscribe(message)
            case _ if self.run is None:
                self.send(NOT_SUBSCRIBED)
            case protocol.Play() | protocol.Pause():
                for playback in self._own_playbacks():
                    playback.playing = isinstance(message, protocol.Play)
            case protocol.StepBy():
                self._apply(lambda playback: playback.step(message.by))
            case protocol.Seek():
                self._apply(lambda playback: playback.seek(message.timestep))
            case protocol.SetSpeed():
                for playback in self._own_playbacks():
                    playback.speed = message.speed
            case protocol.Select():
                self._select(message)
            case protocol.Reset():
                self._seed = self._seed + 1 if message.seed is None else message.seed
                self._resets += 1
                self._apply(lambda playback: playback.show(playback.source() or playback.episode))
            case protocol.Watch():
                self._play(message.agents)
            case protocol.Act():
                self._act(message.action)
            case protocol.Ask():
                self._ask(message)

    def _apply(self, action: Callable[[Playback], list[Message]]) -> None:
        for playback in self._own_playbacks():
            self._send_playback(action(playback))
            self.hub.register(playback.episode)

    def _own_playbacks(self) -> list[Playback]:
        """This viewer's playbacks; a viewer who followed training continues from there independently."""
        if self.follows_training:
            town, self.follows_training = self._town, False
            playback = self._new_playback(town.next_episode, speed=town.playback.speed)
            playback.copy_position(town.playback)
            self.playbacks = [playback]
        return self.playbacks

    def _subscribe(self, subscription: protocol.Subscribe) -> None:
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
        self.subscription, self.follows_training, self.playbacks = subscription, False, []
        self._resampled = self._new_playback(lambda: None)
        if subscription.source == "training":
            town, self.follows_training = self._town, True
            if subscription.rate == FRAME_RATE:
                self._send_playback(town.playback.so_far())
        elif subscription.source == "checkpoint":
            self._play(self._agents)
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
        self.follows_training, self.playbacks = False, [playback]
        self._send_playback(playback.show(episode))
        self.hub.register(episode)

    # Agents

    def _play(self, agents: Sequence[AgentChoice], world: World | None = None, first: Sequence[Message] = ()) -> None:
        """Show episodes of agents in the same town; `first` is sent once all are known to fit the world."""
        world = world or self._edited_world
        sources = [self._episode_source(choice, world) for choice in agents]
        self._agents, self._edited_world = list(agents), world
        self.send(*first)
        self.follows_training, previous = False, self.playbacks
        speed, playing = (previous[0].speed, previous[0].playing) if previous else (DEFAULT_SPEED, True)
        playing = playing and not self._has_human
        sides: tuple[Side, Side] = (0, 1)
        self.playbacks = [
            self._new_playback(source, side, speed, playing) for side, source in zip(sides, sources, strict=False)
        ]
        self._apply(lambda playback: playback.show(playback.source()))

    @property
    def _has_human(self) -> bool:
        return any(isinstance(choice, HumanChoice) for choice in self._agents)

    def _episode_source(self, choice: Any, edited: World | None) -> EpisodeSource:
        """Source of an agent's episodes, with the same seeds on both sides; resolves `latest` for each episode."""
        town, numbers, resets = self._town, count(), self._resets
        world = edited or town.world

        def next_episode() -> TownEpisode:
            nonlocal numbers, resets
            if resets != self._resets:
                numbers, resets = count(), self._resets
            trained, label, name, env_steps = self._load(choice, world)
            label += ", in your edited world" if edited else ""
            seed = (self._seed + SEED_STEP * next(numbers)) % 2**63
            actor = make_actor(choice, trained, world, seed)
            return PlayedEpisode(world, actor, seed, label, env_steps, name, town.record)

        self._load(choice, world)  # an agent that does not fit the world is refused now, not at the first frame
        return next_episode

    def _load(self, choice: Any, world: World) -> tuple[TrainedPolicy | None, str, str, int]:
        """Policy, label, first name and training progress of an agent."""
        if isinstance(choice, HumanChoice):
            return None, SCRIPTED_LABELS["human"], "You", 0
        if isinstance(choice, ScriptedChoice):
            return None, SCRIPTED_LABELS[choice.kind], first_name(choice.kind), 0
        assert isinstance(choice, PolicyChoice)
        run, found, trained = self._load_policy(choice)
        trained.require_interface(world)
        label = player_label(choice.checkpoint, found)
        label = label if run.name == self._town.run.name else f"{run.meta().get('recipe', run.name)}, {label}"
        label += f", {choice.epsilon:.0%} random" if choice.epsilon else ""
        return trained, label, first_name(run.name), found.env_steps

    def _load_policy(self, choice: PolicyChoice) -> tuple[Run, Checkpoint, TrainedPolicy]:
        run = self._town.run if choice.run is None else find_run(self.hub.root, choice.run)
        found = self.hub.policies.find(run, choice.checkpoint)
        return run, found, self.hub.policies.policy(run, found)

    def _trained_in(self) -> list[World]:
        """Worlds of the chosen trained policies; people and scripted agents can play anywhere."""
        worlds = []
        if isinstance(self.run, WatchedTownRun):
            for choice in self._agents:
                with suppress(TownletError):  # a policy that is gone is reported when it should play
                    if isinstance(choice, PolicyChoice):
                        worlds.append(self.run.world if choice.run is None else self._load_policy(choice)[2].world)
        return worlds

    def _act(self, action: int) -> None:
        """Take the viewer's action; an agent beside takes a step, too."""
        if not self._has_human:
            raise TownletError("no agent is played by you", "choose yourself as one of the agents")
        for playback in self.playbacks:
            episode = playback.episode
            if isinstance(episode, PlayedEpisode) and isinstance(episode.actor, HumanActor):
                if action >= len(episode.world.actions):
                    raise TownletError(f"there is no action {action}", "see `actions` of the world")
                episode.actor.press(action)
        self._apply(lambda playback: playback.seek(int(playback.position) + 1))

    # Questions and edited worlds, computed in a thread

    def _compute(self, kind: str, work: Callable[[], Message], delay: float = 0.0) -> None:
        """Compute a message in a thread and send it; a later computation of the same kind replaces an earlier one."""
        if kind in self._tasks:
            self._tasks[kind].cancel()

        async def compute() -> None:
            await asyncio.sleep(delay)
            async with self.hub.computations:
                try:
                    self.send(await asyncio.to_thread(work))
                except (TownletError, ConfigError) as error:
                    first = error.diagnostics[0]
                    self.send(protocol.Error(what=first.what, fix=first.fix))

        self._tasks[kind] = asyncio.get_running_loop().create_task(compute())

    def _ask(self, request: protocol.Ask) -> None:
        playback = next((p for p in self._own_playbacks() if p.side == request.side), None)
        if playback is None or playback.episode is None:
            raise TownletError("there is nothing to ask about yet", "wait for an episode")
        episode, choice = playback.episode, self._agents[request.side]
        if not isinstance(episode, PlayedEpisode):
            choice = PolicyChoice()  # an episode of training: its run's latest policy answers
        trained = self._load_policy(choice)[2] if isinstance(choice, PolicyChoice) else None
        kind = choice.kind
        recording, output_kind, world = episode.recording, episode.output_kind, episode.world

        def answer() -> Message:
            situation = questions.Situation(world, recording, request.timestep, output_kind)
            player = questions.player_of(kind, trained, world)
            return questions.answer(situation, player, request)

        self._compute("answer", answer)

    def edit(self, request: protocol.EditWorld, world: World, text: str | None) -> None:
        """Accept a valid edited world; with `preview`, show the current agents in it. `text` is the changed one."""
        differences = [
            change for known in self._trained_in() for change in world_editing.interface_changes(world, known)
        ]
        checked = protocol.WorldChecked(
            number=request.number, errors=[], text=text, spec=world.spec.model_dump(mode="json", by_alias=True),
            differences=[*dict.fromkeys(differences)], world=world_json(world) if request.preview else None,
        )  # fmt: skip
        if not request.preview:
            self.send(checked)
        elif self.run is None:
            self.send(NOT_SUBSCRIBED)
        else:
            self._attempt(self._play, self._agents, world, [checked])

        def verdict() -> Message:
            livable, sentences = world_editing.verdict(world)
            return protocol.WorldVerdict(number=request.number, livable=livable, sentences=sentences)

        self._compute("verdict", verdict, VERDICT_DELAY)
