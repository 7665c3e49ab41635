"""Micro-batching: queued observations are evaluated in one batch, and answered once their records are on disk."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from townlet.decide.service import Answer, Service, error_message

logger = logging.getLogger(__name__)
BATCH_BYTES: Final = 1 << 16  # maximum size of a batch as JSON, so that parsing does not block the event loop
LATENCY_WINDOW: Final = 1000  # latest replies whose latency is kept

FutureReply = asyncio.Future[dict[str, Any]]


class QueuedObservation(NamedTuple):
    """An observation that waits for its answer."""

    message: Mapping[str, Any]
    size: int  # bytes, as JSON
    client: str  # owner id of its sender
    since: float  # time of arrival
    reply: FutureReply


class Batcher:
    """Collects observations into batches for the service. Runs in the thread of the event loop."""

    def __init__(self, service: Service) -> None:
        self.service, self._settings = service, service.settings.overload
        self._loop = asyncio.get_running_loop()
        self._queues: OrderedDict[str, deque[QueuedObservation]] = OrderedDict()  # by client, the next in turn first
        # Answers whose records are not on disk yet, with the time of arrival if the latency is measured.
        self._unsynced: deque[tuple[Answer, FutureReply, float | None]] = deque()
        self._count = self._bytes = 0  # number and size of queued observations
        self._scheduled = False
        self.overloaded = 0  # observations refused or answered by the gate alone because of overload
        self.latency: deque[float] = deque(maxlen=LATENCY_WINDOW)  # seconds from an observation to its reply
        service.storage.on_durable(self._on_commit)

    def __len__(self) -> int:
        return self._count

    def submit(self, message: Mapping[str, Any], size: int = 0, client: str = "") -> FutureReply:
        """The future reply to an observation; an immediate error if the queue is full.

        Observations of one client are answered in order: otherwise an earlier one of the same territory would be stale.
        Clients take turns, so that many or large observations of one do not delay the others.
        """
        reply: FutureReply = self._loop.create_future()
        queued, limits = QueuedObservation(message, size, client, self._loop.time(), reply), self._settings
        if self._count >= limits.waiting or self._bytes + size > limits.waiting_bytes:
            self._refuse([queued])
            return reply
        self._queues.setdefault(client, deque()).append(queued)
        self._count += 1
        self._bytes += size
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._process_batch)  # after the other input of this iteration
        return reply

    def reply_when_synced(self, answer: Answer) -> FutureReply:
        """The future reply of an answer, resolved once its record is on disk."""
        future: FutureReply = self._loop.create_future()
        self._schedule_reply(answer, future, None)
        return future

    def _process_batch(self) -> None:
        batch = self._next_batch()
        late_before = self._loop.time() - self._settings.patience
        late = [queued for queued in batch if queued.since < late_before]
        batch = [queued for queued in batch if queued.since >= late_before]
        if late and self._settings.mode == "refuse":
            self._refuse(late)
        elif late:
            self.overloaded += len(late)
            self._answer(late, skip_network=True)
        if batch:
            self._answer(batch)
        self._scheduled = bool(self._queues)
        if self._scheduled:
            self._loop.call_soon(self._process_batch)

    def _next_batch(self) -> list[QueuedObservation]:
        """The next observations, one per client in turn; fewer if they are large, since parsing takes time."""
        batch: list[QueuedObservation] = []
        size = 0
        while self._queues and len(batch) < self._settings.batch_size:
            client, queue = next(iter(self._queues.items()))
            size += queue[0].size
            if batch and size > BATCH_BYTES:
                break
            batch.append(queue.popleft())
            self._queues.move_to_end(client)
            if not queue:
                del self._queues[client]
        self._count -= len(batch)
        self._bytes -= sum(queued.size for queued in batch)
        return batch

    def _refuse(self, batch: list[QueuedObservation]) -> None:
        self.overloaded += len(batch)
        refusal = error_message("OVERLOADED", "the service is overloaded; send the observation again later")
        for queued in batch:
            self._resolve(refusal, queued.reply, queued.since)

    def _answer(self, batch: list[QueuedObservation], skip_network: bool = False) -> None:
        """Answer a batch; an unexpected error affects only this batch."""
        try:
            clients = [queued.client for queued in batch]
            answers = self.service.answer([queued.message for queued in batch], skip_network, clients)
        except Exception:
            logger.exception("%d observations could not be answered", len(batch))
            answers = [Answer(error_message("INTERNAL", "internal error; see the output of the service"))] * len(batch)
        for queued, answer in zip(batch, answers, strict=True):
            self._schedule_reply(answer, queued.reply, queued.since)

    def _schedule_reply(self, answer: Answer, future: FutureReply, since: float | None) -> None:
        if answer.record <= self.service.storage.durable:
            self._resolve(answer.reply, future, since)
        else:
            self._unsynced.append((answer, future, since))

    def _resolve(self, reply: dict[str, Any], future: FutureReply, since: float | None) -> None:
        if since is not None:
            self.latency.append(self._loop.time() - since)
        if not future.done():  # canceled if the client has disconnected
            future.set_result(reply)

    def release_unsynced(self) -> None:
        """Reply without waiting for the log while it cannot be written; called periodically.

        Decisions get an id that accepts no report, because after a crash the id may be reused; reports are refused.
        """
        if self.service.storage.problem:
            waiting, self._unsynced = self._unsynced, deque()
            for answer, future, since in waiting:
                self._resolve(self.service.unlogged_reply(answer.reply), future, since)

    def _on_commit(self, record: int) -> None:
        """Called in a thread of the storage."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._release, record)

    def _release(self, record: int) -> None:
        while self._unsynced and self._unsynced[0][0].record <= record:
            answer, future, since = self._unsynced.popleft()
            self._resolve(answer.reply, future, since)
