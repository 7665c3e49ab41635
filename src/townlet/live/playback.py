"""Episodes in towns as the page shows them, recorded or played on demand, and their playback at a viewer's speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from townlet.live.agents import Actor, HumanActor
from townlet.live.explain import death_certificate, explain_action
from townlet.live.messages import Message, OutputKind, Side
from townlet.live.names import first_name
from townlet.live.protocol import EpisodeEnd, EpisodeStart, Frame
from townlet.live.story import Story
from townlet.town.engines.engine import make_engine
from townlet.town.episode_recorder import FRAME_FIELDS, Recording, empty_arrays
from townlet.town.state import cause_codes, cause_names
from townlet.town.world.tables import World

DIGITS: Final = 3
INITIAL_CAPACITY: Final = 512  # timesteps; doubled when full
END_PAUSE: Final = 2.0  # seconds that an ended episode stays on screen
MAX_STEPS_AT_ONCE: Final = 200  # of an episode that are computed in one call: no other viewer is served meanwhile
MAX_PLAYED_STEPS: Final = 20_000  # of one episode; the page keeps as many
MAX_FRAME_STEPS: Final = 256  # timesteps in one frame message; earlier ones are dropped
TRAINING_SPEED: Final = 12.0  # steps per second of the playback shared by all viewers of a training run
MAX_EPISODE_SECONDS: Final = 15.0  # episodes that would take longer in that playback are sped up
_ids = count(1)


class TownEpisode:
    """A recorded episode; subclasses may extend `recording` until `over`.

    `record` is the length of the longest life known before it.
    """

    seed: int | None = None  # of an episode that is played on request
    checkpoint: str | None = None  # whose policy plays it

    def __init__(
        self, world: World, recording: Recording, label: str, row: int, env_steps: int, output_kind: OutputKind,
        source: str, name: str = "", record: int | None = None,
    ) -> None:  # fmt: skip
        self.world, self.recording, self.label, self.row = world, recording, label, row
        self.env_steps, self.output_kind, self.source = env_steps, output_kind, source
        self.name = name or first_name(label, row)
        self.id, self.over = next(_ids), True
        self._story, self._end_added = Story(world, record), False

    @property
    def human(self) -> bool:
        """Whether a viewer chooses the actions."""
        return False

    @property
    def cause(self) -> str:
        """Why it ended; only valid once it is over."""
        return cause_names(self.world)[int(cause_codes(self.world, self.recording.meters[-1:])[0])]

    def _events(self, first: int, last: int) -> list[list[str] | None]:
        self._story.advance(self.recording)
        if self.over and not self._end_added:
            self._story.end(self.recording, self.cause)
            self._end_added = True
        return self._story.events(first, last)

    @property
    def known(self) -> int:
        """Number of timesteps that can be shown now."""
        return len(self.recording) + 1

    def reach(self, timestep: int) -> int:
        """Make a timestep available if possible; returns it, or the last available one."""
        return min(timestep, self.known - 1)

    def start_message(self, side: Side = 0) -> EpisodeStart:
        """The message that announces the episode."""
        return EpisodeStart(
            source=self.source, side=side, episode=self.id, row=self.row, env_steps=self.env_steps,
            length=len(self.recording) if self.over else None, label=self.label, name=self.name, seed=self.seed,
            human=self.human, checkpoint=self.checkpoint,
            cell_of=self.recording.cell_of.tolist(), output_kind=self.output_kind,
        )  # fmt: skip

    def frame(self, first: int, last: int, side: Side = 0) -> Frame:
        """The timesteps first … last, each with the transition that led to it."""
        r, at = self.recording, slice(first, last + 1)
        steps = [None if timestep == 0 else timestep - 1 for timestep in range(first, last + 1)]

        def transitions(values: NDArray[Any], digits: int | None = DIGITS) -> list[Any]:
            rounded = values if digits is None else np.round(values.astype(np.float64), digits)
            return [None if step is None else rounded[step].tolist() for step in steps]

        return Frame(
            side=side, episode=self.id,
            **{name: getattr(r, name)[at].tolist() for name in FRAME_FIELDS},
            meters=np.round(r.meters[at].astype(np.float64), DIGITS).tolist(),
            action=transitions(r.actions, None), mask=transitions(r.mask, None),
            outputs=[None] * len(steps) if self.output_kind == "none" else transitions(r.outputs),
            reward=transitions(r.reward), components=transitions(r.components),
            why=[None if step is None else explain_action(self.world, r, step, self.output_kind) for step in steps],
            events=self._events(first, last), sent=time.time(),
        )  # fmt: skip

    def end_message(self, side: Side = 0) -> EpisodeEnd:
        """The message that says how the episode ended; only valid once it is over."""
        r, cause = self.recording, self.cause
        return EpisodeEnd(
            side=side, episode=self.id, length=int(r.age[-1]), cause=cause,
            reward=round(float(r.reward.sum()), DIGITS), certificate=death_certificate(self.world, r, cause),
        )  # fmt: skip


class PlayedEpisode(TownEpisode):
    """An episode of an agent, computed only as far as a viewer has watched, and at most for `limit` steps."""

    def __init__(
        self, world: World, actor: Actor, seed: int, label: str, env_steps: int, name: str, record: int | None = None,
        checkpoint: str | None = None, limit: int = MAX_PLAYED_STEPS,
    ) -> None:  # fmt: skip
        self.actor, self.seed, self._steps = actor, seed, 0
        self.checkpoint, self._limit = checkpoint, limit
        self._engine = make_engine(world, 1, autoreset=False)
        self._engine.reset(seed)
        self._arrays = empty_arrays(world, INITIAL_CAPACITY)
        self._observe(0)
        super().__init__(world, self._recorded(), label, 0, env_steps, actor.output_kind, "checkpoint", name, record)
        self.over = False

    @property
    def human(self) -> bool:
        return isinstance(self.actor, HumanActor)

    def _recorded(self) -> Recording:
        lengths = dict.fromkeys((*FRAME_FIELDS, "meters"), self._steps + 1)
        cell_of = np.asarray(self._engine.peek("cell_of")["cell_of"])[0].astype(np.uint32)
        arrays = {name: values[: lengths.get(name, self._steps)] for name, values in self._arrays.items()}
        return Recording(**arrays, cell_of=cell_of)

    def reach(self, timestep: int) -> int:
        """Compute some steps towards a timestep or the end; returns the timestep, or the last available one."""
        until = min(timestep, self._steps + MAX_STEPS_AT_ONCE)
        while self._steps < until and not self.over and self._step():
            pass
        self.recording = self._recorded()
        return min(timestep, self._steps)

    def _step(self) -> bool:
        """Take a step; returns whether the actor has decided on an action."""
        engine, at = self._engine, self._steps
        chosen = self.actor.act(engine, at == 0)
        if chosen is None:
            return False
        if at + 1 == len(self._arrays["cell"]):
            self._arrays = {name: np.concatenate([part, np.zeros_like(part)]) for name, part in self._arrays.items()}
        arrays = self._arrays
        arrays["mask"][at] = engine.mask[0]
        action, arrays["outputs"][at] = chosen
        engine.step(np.array([action], np.int64))
        arrays["actions"][at], arrays["reward"][at] = action, engine.reward[0]
        arrays["components"][at] = engine.components[0]
        self._steps += 1
        self._observe(self._steps)
        self.over = bool(engine.terminated[0] or engine.truncated[0]) or self._steps >= self._limit
        return True

    def _observe(self, at: int) -> None:
        for name, values in self._engine.peek(*FRAME_FIELDS, "meters").items():
            self._arrays[name][at] = values[0]


EpisodeSource = Callable[[], TownEpisode | None]  # the next episode, or None if there is none yet


@dataclass
class Playback:
    """Plays episodes of a source one after another; its methods return the messages to send to the page."""

    source: EpisodeSource
    side: Side = 0
    speed: float = 5.0  # steps per second
    playing: bool = True
    episode: TownEpisode | None = None
    position: float = 0.0  # timestep, including the elapsed fraction of the next one
    delivered: Callable[[], bool] = lambda: True  # False while the last frame is queued: the next one repeats its steps
    _goal: int | None = None  # timestep that was sought and is not computed yet
    _first: int = 0  # first timestep of the last frame
    _last: int = -1  # last timestep sent
    _ended: bool = False  # the end message was sent
    _pause: float = 0.0  # seconds left of the pause after an episode
    _following: TownEpisode | None = None  # the next episode, once the source has it

    def show(self, episode: TownEpisode | None) -> list[Message]:
        """Switch to another episode, at its first timestep."""
        self.episode, self.position, self._first, self._last = episode, 0.0, 0, -1
        self._ended, self._pause, self._goal, self._following = False, END_PAUSE, None, None
        return [] if episode is None else [episode.start_message(self.side), *self._new_frames()]

    def advance(self, seconds: float) -> list[Message]:
        """Advance the playback by `seconds`."""
        if self.episode is None:
            return self.show(self.source())
        if self._goal is not None:
            return self._approach(self._goal)
        if not self.playing:
            return []
        if self._ended:
            following = self.following(seconds)
            return [] if following is None else self.show(following)
        target = self.position + self.speed * seconds
        self.position = float(min(target, self.episode.reach(int(target)) + 0.999))
        return self._new_frames()

    @property
    def ended(self) -> bool:
        """Whether the end of the episode is on screen."""
        return self._ended

    def following(self, seconds: float) -> TownEpisode | None:
        """The next episode; None during the pause before it, and while the source prepares it."""
        self._pause -= seconds if self.playing else 0.0
        if self._pause <= 0 and self._following is None:
            self._following = self.source()
        return self._following

    def so_far(self) -> list[Message]:
        """Messages that show a new viewer the current position."""
        if self.episode is None or self._last < 0:
            return []
        frame = self.episode.frame(max(0, self._last - MAX_FRAME_STEPS + 1), self._last, self.side)
        end = [self.episode.end_message(self.side)] if self._ended else []
        return [self.episode.start_message(self.side), frame, *end]

    def copy_position(self, other: Playback) -> None:
        """Continue where another playback is."""
        self.episode, self.position, self._last, self._ended = other.episode, other.position, other._last, other._ended

    def follow(self, other: Playback) -> list[Message]:
        """Messages that show what another playback has shown since the last call, as one frame."""
        messages = self.show(other.episode) if other.episode is not self.episode else []
        self.position = other.position
        return messages if self.episode is None else messages + self._new_frames()

    @property
    def goal(self) -> int:
        """The timestep on screen, or the one that was sought."""
        return int(self.position) if self._goal is None else self._goal

    def seek(self, timestep: int) -> list[Message]:
        """Move to a timestep of this episode, clipped to what exists; a distant one is reached by later advances."""
        if self.episode is None:
            return []
        self._ended, self._pause = False, END_PAUSE
        if max(0, timestep) <= self._last:
            self._first, self._last = max(0, timestep), max(0, timestep) - 1
            self.position = float(max(0, timestep))
        return self._approach(max(0, timestep))

    def _approach(self, goal: int) -> list[Message]:
        """Move towards a timestep, as far as it can be computed now."""
        assert self.episode is not None
        before, reached = int(self.position), self.episode.reach(goal)
        self.position = float(reached)
        self._goal = goal if before < reached < goal and not self.episode.over else None
        return self._new_frames()

    def _new_frames(self) -> list[Message]:
        """The timesteps up to the position that were not sent yet, and the end once it is reached."""
        episode, now = self.episode, int(self.position)
        assert episode is not None
        messages: list[Message] = []
        if now > self._last:
            first = self._last + 1 if self.delivered() else self._first
            self._first = max(first, now - MAX_FRAME_STEPS + 1)
            messages.append(episode.frame(self._first, now, self.side))
            self._last = now
        if episode.over and now >= episode.known - 1 and not self._ended:
            self._ended = True
            messages.append(episode.end_message(self.side))
        return messages


def advance_together(playbacks: Sequence[Playback], seconds: float) -> list[Message]:
    """Advance playbacks side by side: the next episodes start together, once all on screen have ended."""
    if not all(playback.ended for playback in playbacks):
        return [message for playback in playbacks if not playback.ended for message in playback.advance(seconds)]
    following = [playback.following(seconds) for playback in playbacks]
    if None in following:
        return []
    return [m for playback, one in zip(playbacks, following, strict=True) for m in playback.show(one)]


class TrainingPlayback(Playback):
    """The playback shared by all viewers of a training run; long episodes are sped up so that it stays current."""

    def __init__(self, source: EpisodeSource) -> None:
        super().__init__(source, speed=TRAINING_SPEED)

    def show(self, episode: TownEpisode | None) -> list[Message]:
        """Switch to another episode, at a speed that fits its length."""
        self.speed = TRAINING_SPEED if episode is None else max(TRAINING_SPEED, episode.known / MAX_EPISODE_SECONDS)
        return super().show(episode)
