"""Where observations wait: they are decided together, and answered once the log has them. Nothing waits without end."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from townlet.decide.service import Answer, Service, error_message

logger = logging.getLogger(__name__)
TURN: Final = 1 << 16  # bytes of observations, as JSON, that are decided in one turn of the loop
MEASURED: Final = 1000  # answers of which it is known how long they took


class QueuedObservation(NamedTuple):
    """An observation that waits for its decision."""

    message: Mapping[str, Any]
    size: int  # bytes, as JSON
    client: str  # the owner of what it opens
    since: float
    answer: asyncio.Future[dict[str, Any]]


class PendingReply(NamedTuple):
    """A reply that goes out once the log has its record."""

    record: int
    future: asyncio.Future[dict[str, Any]]
    reply: dict[str, Any]
    since: float | None  # when it was asked for; None: nobody measures it


class Batcher:
    """Micro-batches for the service, in the thread of the event loop."""

    def __init__(self, service: Service) -> None:
        self.service, self._settings = service, service.settings.overload
        self._loop = asyncio.get_running_loop()
        self._waiting: OrderedDict[str, deque[QueuedObservation]] = OrderedDict()  # by client, the next in turn first
        self._unsynced: deque[PendingReply] = deque()
        self._count = self._bytes = 0  # of the observations that wait, and their bytes as JSON
        self._due = False
        self.overloaded = 0  # observations that no network decided for want of time
        self.latency: deque[float] = deque(maxlen=MEASURED)  # seconds from an observation to its answer
        service.log.subscribe(self._on_disk)

    def __len__(self) -> int:
        return self._count

    def ask(self, message: Mapping[str, Any], size: int = 0, client: str = "") -> asyncio.Future[dict[str, Any]]:
        """The answer to an observation, later; at once where so many wait that it could not be decided in time.

        Those of one client are decided in their order: an earlier one of the same territory would be stale otherwise.
        Clients take turns, so that many or large observations of one do not delay the others.
        """
        answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        asked, limits = QueuedObservation(message, size, client, self._loop.time(), answer), self._settings
        if self._count >= limits.waiting or self._bytes + size > limits.waiting_bytes:
            self._refuse([asked])
            return answer
        self._waiting.setdefault(client, deque()).append(asked)
        self._count += 1
        self._bytes += size
        if not self._due:
            self._due = True
            self._loop.call_soon(self._decide)  # after what else has come in this turn of the loop
        return answer

    def told(self, answer: Answer) -> asyncio.Future[dict[str, Any]]:
        """A reply that goes out once the log has its record."""
        future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._promise(PendingReply(answer.record, future, answer.reply, None))
        return future

    def _decide(self) -> None:
        """Decide for those that wait, a batch in one turn of the loop."""
        batch = self._next()
        oldest = self._loop.time() - self._settings.patience
        late = [asked for asked in batch if asked.since < oldest]
        batch = [asked for asked in batch if asked.since >= oldest]
        if late and self._settings.mode == "refuse":
            self._refuse(late)
        elif late:
            self.overloaded += len(late)
            self._answer(late, hurried=True)
        if batch:
            self._answer(batch)
        self._due = bool(self._waiting)
        if self._due:
            self._loop.call_soon(self._decide)

    def _next(self) -> list[QueuedObservation]:
        """The observations to decide in this turn of the event loop: fewer if they are large, which takes longer."""
        batch: list[QueuedObservation] = []
        size = 0
        while self._waiting and len(batch) < self._settings.batch:
            client, lane = next(iter(self._waiting.items()))
            size += lane[0].size
            if batch and size > TURN:
                break
            batch.append(lane.popleft())
            self._waiting.move_to_end(client)
            if not lane:
                del self._waiting[client]
        self._count -= len(batch)
        self._bytes -= sum(asked.size for asked in batch)
        return batch

    def _refuse(self, asked: list[QueuedObservation]) -> None:
        self.overloaded += len(asked)
        refusal = error_message("OVERLOADED", "more is asked than can be decided now; ask again later")
        self._give(asked, [Answer(refusal)] * len(asked))

    def _answer(self, asked: list[QueuedObservation], hurried: bool = False) -> None:
        """Decide, whatever comes: a mistake of ours may cost these answers, and no others."""
        try:
            clients = [one.client for one in asked]
            answers = self.service.answer([one.message for one in asked], hurried, clients)
        except Exception:
            logger.exception("%d observations could not be decided", len(asked))
            answers = [Answer(error_message("INTERNAL", "the service has failed here; its output says how"))] * len(
                asked
            )
        self._give(asked, answers)

    def _give(self, asked: list[QueuedObservation], answers: list[Answer]) -> None:
        for one, answer in zip(asked, answers, strict=True):
            self._promise(PendingReply(answer.record, one.answer, answer.reply, one.since))

    def _promise(self, promised: PendingReply) -> None:
        if promised.record <= self.service.log.synced:
            self._keep(promised)
        else:
            self._unsynced.append(promised)

    def _keep(self, promised: PendingReply) -> None:
        if promised.since is not None:
            self.latency.append(self._loop.time() - promised.since)
        if not promised.future.done():  # else whoever asked is gone
            promised.future.set_result(promised.reply)

    def give_up(self) -> None:
        """While the log cannot be written nobody waits for it; to be called now and then.

        A decision is told without a name, since after a crash its name may be another's; a report must come again.
        """
        if self.service.log.problem:
            waiting, self._unsynced = self._unsynced, deque()
            for promised in waiting:
                self._keep(promised._replace(reply=self.service.unkept(promised.reply)))

    def _on_disk(self, record: int) -> None:
        """In the log's own thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._release, record)

    def _release(self, record: int) -> None:
        while self._unsynced and self._unsynced[0].record <= record:
            self._keep(self._unsynced.popleft())
