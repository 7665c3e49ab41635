"""The viewers of a server, each with its playback, and the hub that updates them and the runs they watch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

from townlet.errors import ConfigError, TownletError
from townlet.live import protocol
from townlet.live.playback import EpisodeSource, Playback, PlayedEpisode, TownEpisode
from townlet.live.policy_cache import CheckpointActor, PolicyCache, player_label
from townlet.live.protocol import FRAME_RATE, ClientMessage, Error, Message, Side
from townlet.live.rollout_worker import RolloutWorker
from townlet.live.watched_run import WatchedRun, WatchedTownRun, find_run, open_watched_run
from townlet.live.world_view import world_json
from townlet.runs.checkpoint import Checkpoint
from townlet.town.world.tables import World
from townlet.train.policies import TrainedPolicy
from townlet.web.mailbox import Mailbox

LOG: Final = logging.getLogger(__name__)


class Hub:
    """Opens a run for its first viewer, updates it while it is watched, and closes it when its last viewer leaves."""

    def __init__(self, root: Path, first: str | None = None, program: str = "townlet") -> None:
        self.root, self.first, self.program = root, first, program  # `first`: name of the run to show first, if any
        self.policies, self.rollouts = PolicyCache(), RolloutWorker()
        self._runs: dict[str, WatchedRun] = {}
        self._viewers: dict[str, set[Viewer]] = {}
        self._errors: dict[str, str] = {}  # last error of each run, to log it once

    @property
    def viewer_count(self) -> int:
        return sum(map(len, self._viewers.values()))

    def join(self, name: str, viewer: Viewer) -> WatchedRun:
        if name not in self._runs:
            self._runs[name] = open_watched_run(find_run(self.root, name))
            self._viewers.setdefault(name, set())
        self._viewers[name].add(viewer)
        return self._runs[name]

    def leave(self, name: str, viewer: Viewer) -> None:
        self._viewers[name].discard(viewer)
        if not self._viewers[name]:
            del self._viewers[name]
            if name in self._runs:
                self._runs.pop(name).close()

    async def run(self) -> None:
        """Update all watched runs and their viewers at the frame rate, forever."""
        last = due = time.monotonic()
        while True:
            due = max(due + 1 / FRAME_RATE, time.monotonic())  # missed ticks are skipped
            await asyncio.sleep(due - time.monotonic())
            now = time.monotonic()
            seconds, last = now - last, now
            for name, run in list(self._runs.items()):
                try:
                    self._update(run, self._viewers[name], seconds)
                    self._errors.pop(name, None)
                except Exception as error:  # other runs are not affected
                    if self._errors.get(name) != repr(error):
                        LOG.exception("%s could not be shown", name)
                    self._errors[name] = repr(error)
                await asyncio.sleep(0)

    def _update(self, run: WatchedRun, viewers: set[Viewer], seconds: float) -> None:
        """Send new messages of one run to its viewers; each message is serialized once."""
        try:
            messages = run.poll()
        except (TownletError, OSError) as error:  # removed or damaged while watched
            messages = [Error(what=f"{run.run.name} can no longer be read: {error}", fix="choose another run")]
            self._runs.pop(run.run.name, None)
        texts = [message.model_dump_json() for message in messages]
        shared: Sequence[tuple[Message, str]] = ()
        if isinstance(run, WatchedTownRun) and any(viewer.follows_training for viewer in viewers):
            shared = [(m, m.model_dump_json()) for m in run.playback.advance(seconds)]
        for viewer in viewers:
            viewer.tick(texts, shared)


DEFAULT_SPEED: Final = 5.0  # steps per second
FIRST_SEED: Final = 1  # seed of the first episode of a checkpoint
NOT_SUBSCRIBED: Final = protocol.Error(what="no run is being watched", fix="subscribe to a run first")

PolicyChoice = tuple[str, float]  # checkpoint name and epsilon


class Viewer:
    """State of one connection. No method blocks: all messages go to the mailbox."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.mailbox = hub, Mailbox()
        self.run: WatchedRun | None = None
        self.subscription: protocol.Subscribe | None = None
        self.follows_training = False  # it shows the playback that all viewers of a training run share
        self.playbacks: list[Playback] = []  # one, or two side by side; empty while following training
        self._policies: list[PolicyChoice] = [("latest", 0.0)]  # one per side
        self._edited_world: World | None = None
        self._seed = FIRST_SEED
        self._last_frame = 0.0  # time of the last frame
        self._resampled = self._new_playback(lambda: None)  # the shared playback at this viewer's lower frame rate

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
                self._apply(lambda playback: playback.show(playback.source() or playback.episode))
            case protocol.LoadCheckpoint():
                names = [name for name, _ in self._policies]
                names[message.side : message.side + 1] = [message.checkpoint]
                self._play([(name, message.epsilon) for name in names])
            case protocol.Compare():
                left = self._policies[0]
                right = [] if message.checkpoint is None else [(message.checkpoint, left[1])]
                self._play([left, *right])

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

    def _subscribe(self, subscription: protocol.Subscribe) -> None:
        """Watch a run: send its history first, then start playback."""
        run = self.hub.join(subscription.run, self)
        if self.run is not run:
            history = self._history(run)
            previous, self.run = self.run, run
            if previous and previous.run.name != run.run.name:
                self.hub.leave(previous.run.name, self)
            self.send(*history)
            self._policies = [("latest", 0.0)]
        self._edited_world = None
        self.subscription, self.follows_training, self.playbacks = subscription, False, []
        self._resampled = self._new_playback(lambda: None)
        if subscription.source == "training":
            town, self.follows_training = self._town, True
            if subscription.rate == FRAME_RATE:
                self._send_playback(town.playback.so_far())
        elif subscription.source == "checkpoint":
            self._play(self._policies)
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

    def _play(self, policies: list[PolicyChoice], world: World | None = None, first: Sequence[Message] = ()) -> None:
        """Show episodes of checkpoints in the same town; `first` is sent once all are known to fit the world."""
        world = world or self._edited_world
        sources = [self._episode_source(choice, world) for choice in policies]
        self._policies, self._edited_world = policies, world
        self.send(*first)
        self.follows_training, previous = False, self.playbacks
        speed, playing = (previous[0].speed, previous[0].playing) if previous else (DEFAULT_SPEED, True)
        sides: tuple[Side, Side] = (0, 1)
        self.playbacks = [
            self._new_playback(source, side, speed, playing) for side, source in zip(sides, sources, strict=False)
        ]
        self._apply(lambda playback: playback.show(playback.source()))

    def _episode_source(self, choice: PolicyChoice, edited: World | None) -> EpisodeSource:
        """Source of a checkpoint's episodes, with the same seeds on both sides; resolves `latest` for each episode."""
        (name, epsilon), town, episode_numbers = choice, self._town, count()
        world = edited or town.world

        def load() -> tuple[Checkpoint, TrainedPolicy]:
            found = self.hub.policies.find(town.run, name)
            trained = self.hub.policies.policy(town.run, found)
            trained.require_interface(world)
            return found, trained

        def next_episode() -> TownEpisode:
            found, trained = load()
            actor = CheckpointActor(trained, epsilon, self._seed)
            label = player_label(name, found)
            label += f", {epsilon:.0%} random" if epsilon else ""
            label += ", in your edited world" if edited else ""
            return PlayedEpisode(world, actor, self._seed + 1000 * next(episode_numbers), label, found.env_steps)

        load()  # a checkpoint that does not fit the world is refused now, not at the first frame
        return next_episode

    def edit(self, request: protocol.EditWorld, world: World) -> None:
        """Accept a valid edited world; with `preview`, show the current policies in it."""
        if not request.preview:
            self.send(protocol.WorldChecked(number=request.number, errors=[]))
        elif self.run is None:
            self.send(NOT_SUBSCRIBED)
        else:
            accepted = protocol.WorldChecked(number=request.number, errors=[], world=world_json(world))
            self._attempt(self._play, self._policies, world, [accepted])
