"""One viewer: what is shown to it, and what its messages change."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

from townlet.errors import ConfigError, Diagnostic, TownletError
from townlet.live.playback import EpisodeSource, Playback, PlayedEpisode, TownEpisode
from townlet.live.policy_cache import CheckpointActor
from townlet.live.protocol import (
    FRAME_RATE,
    ClientMessage,
    Compare,
    EditWorld,
    Error,
    Frame,
    LoadCheckpoint,
    Message,
    Pause,
    Play,
    Reset,
    Seek,
    Select,
    SetSpeed,
    Side,
    StepBy,
    Subscribe,
    WorldChecked,
)
from townlet.live.world_view import mistake_json, world_json
from townlet.runs.checkpoint import Checkpoint
from townlet.town.world.tables import World
from townlet.train.policies import TrainedPolicy, require_interface
from townlet.web.mailbox import Mailbox

if TYPE_CHECKING:
    from townlet.live.hub import Hub
    from townlet.live.watched_run import WatchedRun, WatchedTownRun

DEFAULT_SPEED: Final = 5.0  # steps a second, until somebody wishes otherwise
FIRST_SEED: Final = 1  # seed of the first town that a checkpoint plays in
NOTHING_SHOWN: Final = Error(what="nothing is shown yet", fix="subscribe to a run first")

PolicyChoice = tuple[str, float]  # which checkpoint plays, and the share of random actions


class Viewer:
    """The state of one connection. Nothing here waits: answers go into the mailbox."""

    def __init__(self, house: Hub) -> None:
        self.house, self.mailbox = house, Mailbox()
        self.stand: WatchedRun | None = None
        self.asked: Subscribe | None = None
        self.follows = False  # sees what all see who look at training as it goes
        self.seats: list[Playback] = []  # its own: one, or two side by side
        self._cast: list[PolicyChoice] = [("latest", 0.0)]  # on each side
        self._world: World | None = None  # that is being edited
        self._seed = FIRST_SEED
        self._then = 0.0  # when its last frame was due
        self._beside = self._seat(lambda: None)  # for what all see, in frames of its own

    def say(self, *messages: Message) -> None:
        """Something that happened."""
        self.mailbox.post_event(*(message.model_dump_json() for message in messages))

    def show(self, messages: Sequence[Message]) -> None:
        """Frames replace those of their side that still wait; all else goes in order."""
        for message in messages:
            self.pass_on(message, message.model_dump_json())

    def pass_on(self, message: Message, text: str) -> None:
        """A message as text that may be shared by many."""
        if isinstance(message, Frame):
            self.mailbox.post_latest(("frame", message.side), text)
        else:
            self.mailbox.post_event(text)

    def _seat(
        self,
        source: Callable[[], TownEpisode | None],
        side: Side = 0,
        speed: float = DEFAULT_SPEED,
        playing: bool = True,
    ) -> Playback:
        """A seat of its own, whose frames hold what the page has not got yet."""
        return Playback(source, side, speed, playing, taken=lambda: not self.mailbox.is_pending(("frame", side)))

    def hear(self, news: Sequence[str]) -> None:
        """What is new about the run."""
        self.mailbox.post_event(*news)

    def turn(self, shown: Sequence[tuple[Message, str]]) -> None:
        """Some time has passed, and this is what all see; whoever asked for fewer frames waits for its turn."""
        assert self.asked is not None
        assert self.stand is not None
        now = time.monotonic()
        waited = now - self._then
        if waited < 1 / self.asked.rate - 0.5 / FRAME_RATE:
            return
        self._then = now
        if self.asked.rows and self.stand.wall:
            self.mailbox.post_latest("wall", self.stand.wall)
        if not self.follows:
            self.advance(waited)
        elif self.asked.rate == FRAME_RATE:
            for message, text in shown:
                self.pass_on(message, text)
        else:
            self.show(self._beside.follow(self._town.air))

    @property
    def _town(self) -> WatchedTownRun:
        """The run that it looks at, which must be a town."""
        assert self.stand is not None
        return self.stand.town()

    def leave(self) -> None:
        """The connection is gone, or looks elsewhere."""
        if self.stand:
            self.house.leave(self.stand.run.name, self)
        self.stand, self.follows, self.seats = None, False, []

    def receive(self, message: ClientMessage) -> None:
        """Do what a message asks for, or say why not."""
        self._attempt(lambda: self._do(message))

    def _attempt(self, do: Callable[[], None]) -> bool:
        """Whether it could be done; if not, the page is told why."""
        try:
            do()
        except (TownletError, ConfigError) as error:
            first = error.diagnostics[0]
            self.say(Error(what=first.what, fix=first.fix))
            return False
        return True

    def _do(self, message: ClientMessage) -> None:
        match message:
            case Subscribe():
                self._subscribe(message)
            case _ if self.stand is None:
                self.say(NOTHING_SHOWN)
            case Play():
                self._own()
                for seat in self.seats:
                    seat.playing = True
            case Pause():
                self._own()
                for seat in self.seats:
                    seat.playing = False
            case StepBy():
                self._own()
                self._each(lambda seat: seat.step(message.by))
            case Seek():
                self._own()
                self._each(lambda seat: seat.seek(message.moment))
            case SetSpeed():
                self._own()
                for seat in self.seats:
                    seat.speed = message.speed
            case Select():
                self._select(message)
            case Reset():
                self._seed = self._seed + 1 if message.seed is None else message.seed
                self._own()
                self._each(lambda seat: seat.show(seat.source() or seat.life))
            case LoadCheckpoint():
                names = [name for name, _ in self._cast]
                names[message.side : message.side + 1] = [message.checkpoint]
                self._play([(name, message.epsilon) for name in names])
            case Compare():
                left = self._cast[0]
                self._play([left] if message.checkpoint is None else [left, (message.checkpoint, left[1])])

    def _each(self, do: Callable[[Playback], list[Message]]) -> None:
        for seat in self.seats:
            self.show(do(seat))

    def advance(self, seconds: float) -> None:
        """So much time has passed for its own seats. Whoever can no longer play leaves the stage."""
        if not self._attempt(lambda: self._each(lambda seat: seat.advance(seconds))):
            self.seats = []

    def _subscribe(self, asked: Subscribe) -> None:
        """Look at a run: all that is known of it first, then what is shown."""
        stand = self.house.enter(asked.run, self)
        if self.stand is not stand:
            told = self._told_first(stand)
            previous, self.stand = self.stand, stand
            if previous and previous.run.name != stand.run.name:
                self.house.leave(previous.run.name, self)
            self.say(*told)
            self._cast = [("latest", 0.0)]
        self._world = None
        self.asked, self.follows, self.seats = asked, False, []
        self._beside = self._seat(lambda: None)
        if asked.source == "training":
            town, self.follows = self._town, True
            if asked.rate == FRAME_RATE:
                self.show(town.air.so_far())
        elif asked.source == "checkpoint":
            self._play(self._cast)
        elif asked.source == "recording":
            self._select(Select(recording=self._town.newest_recording()))
        self._then = time.monotonic()  # to find and prepare all this may have taken a while

    def _told_first(self, stand: WatchedRun) -> list[Message]:
        """All that is known of a run; when it cannot be read, this viewer does not watch it."""
        try:
            return [stand.figures.status(), *stand.figures.whole(), *stand.figures.saved()]
        except BaseException:
            if self.stand and self.stand.run.name == stand.run.name:
                self.stand = None
            self.house.leave(stand.run.name, self)
            raise

    def _own(self) -> None:
        """Whoever touches the controls goes on alone, from where all are."""
        if self.follows:
            town, self.follows = self._town, False
            seat = self._seat(town.next_life, speed=town.air.speed)
            seat.join(town.air)
            self.seats = [seat]

    def _select(self, asked: Select) -> None:
        """A life that was kept, or the latest one of a row of training, and then the next of that row."""
        stand = self._town
        life = stand.of_row(asked.row) if asked.recording is None else stand.recorded(asked.recording)
        if life is None:
            raise TownletError(f"no life of row {asked.row} was seen yet", "wait for one to end")

        def newer() -> TownEpisode | None:
            found = stand.of_row(asked.row) if asked.recording is None else None
            return None if found is seat.life else found

        seat = self._seat(newer)
        self.follows, self.seats = False, [seat]
        self.show(seat.show(life))

    def _play(self, cast: list[PolicyChoice], world: World | None = None, told: Sequence[Message] = ()) -> None:
        """These checkpoints play in the same town, side by side where there are two; who cannot is refused."""
        world = world or self._world
        sources = [self._source(part, world) for part in cast]
        self._cast, self._world = cast, world
        self.say(*told)
        self.follows, before = False, self.seats
        speed, playing = (before[0].speed, before[0].playing) if before else (DEFAULT_SPEED, True)
        sides: tuple[Side, Side] = (0, 1)
        self.seats = [self._seat(source, sides[k], speed, playing) for k, source in enumerate(sources)]
        self._each(lambda seat: seat.show(seat.source()))

    def _source(self, part: PolicyChoice, edited: World | None) -> EpisodeSource:
        """Lives of a checkpoint in towns that both sides share; `latest` is looked up for each life anew."""
        (word, epsilon), stand, lived = part, self._town, count()
        world = edited or stand.world

        def cast() -> tuple[Checkpoint, TrainedPolicy]:
            found = self.house.casting.find(stand.run, word)
            trained = self.house.casting.policy(stand.run, found)
            require_interface(trained, world)
            return found, trained

        def live() -> TownEpisode:
            found, trained = cast()
            actor = CheckpointActor(trained, epsilon, self._seed)
            named = f"{word} checkpoint" if word in ("latest", "best") else "checkpoint"
            who = f"{named}, after {found.env_steps:,} steps"
            who += f", {epsilon:.0%} random" if epsilon else ""
            who += ", in your changed world" if edited else ""
            return PlayedEpisode(world, actor, self._seed + 1000 * next(lived), who, found.env_steps, actor.outputs)

        cast()  # what cannot play is refused at once
        return live

    def edit(self, asked: EditWorld, found: World | list[Diagnostic]) -> None:
        """What came of checking the text of a world; with `preview` the present agent plays in it."""
        if isinstance(found, list):
            self.say(WorldChecked(number=asked.number, mistakes=[mistake_json(mistake) for mistake in found]))
        elif not asked.preview:
            self.say(WorldChecked(number=asked.number, mistakes=[]))
        elif self.stand is None:
            self.say(NOTHING_SHOWN)
        else:
            self._attempt(lambda: self._play(self._cast, found, [
                WorldChecked(number=asked.number, mistakes=[], world=world_json(found))
            ]))  # fmt: skip
