"""Micro-batching: queued observations are evaluated in one batch, and answered once their records are on disk."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from townlet.decide.fair_queue import FairQueue, FutureReply, QueuedMessage
from townlet.decide.service import Answer, Service, error_message
from townlet.decide.territories import token_of
from townlet.decide.tracing import Mark, no_mark
from townlet.web.shares import find_surplus

logger = logging.getLogger(__name__)
BATCH_BYTES: Final = 1 << 16  # maximum size of a batch as JSON, so that parsing does not block the event loop
LATENCY_WINDOW: Final = 1000  # latest replies whose latency is kept

INTERNAL: Final = error_message("INTERNAL", "internal error; see the output of the service")
OVERLOADED: Final = error_message("OVERLOADED", "the service is overloaded; send the observation again later")


class Batcher:
    """Collects observations into batches for the service. Runs in the thread of the event loop."""

    def __init__(self, service: Service) -> None:
        self.service, self._settings = service, service.settings.overload
        self._loop = asyncio.get_running_loop()
        self._queue = FairQueue()
        # Answers whose records are not on disk yet, with the time of arrival if the latency is measured.
        self._unsynced: deque[tuple[Answer, FutureReply, float | None]] = deque()
        self._reports: list[QueuedMessage] = []  # that arrived in this iteration of the event loop
        self._scheduled = False
        self.overloaded = 0  # observations refused or answered by the gate alone because of overload
        self.answered, self.latency_sum = 0, 0.0  # observations answered, and their latencies in seconds
        self.latency: deque[float] = deque(maxlen=LATENCY_WINDOW)  # seconds from an observation to its reply
        service.storage.on_durable(self._on_commit)

    def __len__(self) -> int:
        return len(self._queue)

    def submit(self, message: Mapping[str, Any], size: int = 0, client: str = "", mark: Mark = no_mark) -> FutureReply:
        """The future reply to an observation; an immediate error if the queue is full.

        Observations of one client are answered in order: otherwise an earlier one of the same territory would be stale.
        Tokens and their clients take turns, so that many or large observations of one do not delay the others.
        """
        future: FutureReply = self._loop.create_future()
        return self._enqueue(QueuedMessage(message, size, client, self._loop.time(), future, mark))

    def report(self, message: Mapping[str, Any], size: int = 0, client: str = "", mark: Mark = no_mark) -> FutureReply:
        """The future reply to a report. Reports are stored together, before the observations that wait."""
        future: FutureReply = self._loop.create_future()
        if not self._reports:
            self._loop.call_soon(self._process_reports)
        self._reports.append(QueuedMessage(message, size, client, self._loop.time(), future, mark, is_report=True))
        return future

    def _process_reports(self) -> None:
        batch, self._reports = self._reports, []
        if batch:  # otherwise they were stored before a batch of observations
            for queued, answer in zip(batch, self._compute_reports(batch), strict=True):
                self._schedule_reply(answer, queued.reply, None)

    def _compute_reports(self, batch: Sequence[QueuedMessage]) -> list[Answer]:
        """The answers to reports; an unexpected error affects only this batch."""
        try:
            mark = _mark_all(batch)
            mark("queue")
            clients = [queued.client for queued in batch]
            return self.service.report_all([queued.message for queued in batch], clients, mark, self._waited(batch))
        except Exception:
            logger.exception("%d reports could not be answered", len(batch))
            return [Answer(INTERNAL)] * len(batch)

    def _enqueue(self, queued: QueuedMessage) -> FutureReply:
        """Queue a message. If the queue is full, the newest one of the token with the most is refused, or this one."""
        limits, waiting = self._settings, self._queue
        while len(waiting) >= limits.waiting or waiting.bytes + queued.size > limits.waiting_bytes:
            token = find_surplus(waiting.counts, waiting.counts[token_of(queued.client)])
            if token is None:
                self._refuse([queued])
                return queued.reply
            self._refuse([waiting.drop_newest(token)])
        waiting.append(queued)
        self._schedule()  # after the other input of this iteration
        return queued.reply

    def close(self) -> None:
        """Nothing is in progress."""

    def _process_batch(self) -> None:
        self._scheduled = False
        self._process_reports()
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
        self._schedule()

    def _schedule(self) -> None:
        if self._queue.ready and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._process_batch)

    def _next_batch(self) -> list[QueuedMessage]:
        """The next messages in turn; fewer if they are large, since parsing takes time.

        Of one client there are only observations or only reports, because all reports of a batch are stored first.
        """
        batch: list[QueuedMessage] = []
        kinds: dict[str, bool] = {}  # by client, whether its messages in the batch are reports
        held: list[str] = []
        size = 0
        while self._queue.ready and len(batch) < self._settings.batch_size:
            first = self._queue.first()
            if kinds.setdefault(first.client, first.is_report) != first.is_report:
                self._queue.hold(first.client)
                held.append(first.client)
                continue
            size += first.size
            if batch and size > BATCH_BYTES:
                break
            batch.append(self._queue.take())
        for client in held:
            self._queue.release(client)
        return batch

    def _refuse(self, batch: list[QueuedMessage]) -> None:
        self.overloaded += len(batch)
        for queued in batch:
            self._resolve(OVERLOADED, queued.reply, queued.since)

    def _answer(self, batch: list[QueuedMessage], skip_network: bool = False) -> None:
        for queued, answer in zip(batch, self._compute(batch, skip_network), strict=True):
            self._schedule_reply(answer, queued.reply, queued.since)

    def _compute(self, batch: Sequence[QueuedMessage], skip_network: bool) -> list[Answer]:
        """The answers to observations; an unexpected error affects only this batch."""
        try:
            clients = [queued.client for queued in batch]
            mark = _mark_all(batch)
            mark("queue")
            messages = [queued.message for queued in batch]
            return self.service.answer(messages, skip_network, clients, mark, self._waited(batch))
        except Exception:
            logger.exception("%d observations could not be answered", len(batch))
            return [Answer(INTERNAL)] * len(batch)

    def _waited(self, batch: Sequence[QueuedMessage]) -> float:
        """For how many seconds the oldest of these messages has been waiting."""
        return self._loop.time() - min(queued.since for queued in batch)

    def _schedule_reply(self, answer: Answer, future: FutureReply, since: float | None) -> None:
        if answer.record <= self.service.storage.durable:
            self._resolve(answer.reply, future, since)
        else:
            self._unsynced.append((answer, future, since))

    def _resolve(self, reply: dict[str, Any], future: FutureReply, since: float | None) -> None:
        if since is not None:
            self.latency.append(latency := self._loop.time() - since)
            self.answered, self.latency_sum = self.answered + 1, self.latency_sum + latency
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


class ThreadedBatcher(Batcher):
    """A batcher for a storage that blocks: batches are computed in threads, several at the same time.

    Messages of one client are still answered in order: while one is in progress, its others are held back.

    Each batch costs a transaction, so while one is in progress, another one starts only if it is at least as large.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._in_progress = 0  # messages of batches in progress
        self._idle = service.storage.concurrency  # threads that are free
        self._threads = ThreadPoolExecutor(self._idle, "decisions")

    def report(self, message: Mapping[str, Any], size: int = 0, client: str = "", mark: Mark = no_mark) -> FutureReply:
        """The future reply to a report, which waits for its turn like an observation."""
        future: FutureReply = self._loop.create_future()
        return self._enqueue(QueuedMessage(message, size, client, self._loop.time(), future, mark, is_report=True))

    def _process_batch(self) -> None:
        self._scheduled = False
        if not self._idle or len(self) < self._in_progress or not (batch := self._next_batch()):
            return  # continued when more messages arrive, or a batch is finished
        for client in dict.fromkeys(queued.client for queued in batch):
            self._queue.hold(client)
        self._idle -= 1
        self._in_progress += len(batch)
        late_before = self._loop.time() - self._settings.patience
        work = self._loop.run_in_executor(self._threads, self._compute_all, batch, late_before)
        work.add_done_callback(partial(self._finish, batch))
        self._schedule()

    def _compute_all(self, batch: Sequence[QueuedMessage], late_before: float) -> list[Answer]:
        """In a thread: the answers to reports, then to observations, those that waited for too long first."""
        answers: dict[int, Answer] = {}
        groups: dict[bool, list[int]] = {True: [], False: []}  # observations, by whether they waited for too long
        reports = [index for index, queued in enumerate(batch) if queued.is_report]
        for index, queued in enumerate(batch):
            if not queued.is_report:
                groups[queued.since < late_before].append(index)
        if reports:
            answers |= zip(reports, self._compute_reports([batch[index] for index in reports]), strict=True)
        for late, indices in groups.items():
            if late and self._settings.mode == "refuse":
                answers |= dict.fromkeys(indices, Answer(OVERLOADED))
            elif indices:
                computed = self._compute([batch[index] for index in indices], skip_network=late)
                answers |= zip(indices, computed, strict=True)
        self.overloaded += len(groups[True])
        return [answers[index] for index in range(len(batch))]

    def _finish(self, batch: Sequence[QueuedMessage], work: asyncio.Future[list[Answer]]) -> None:
        """In the event loop: send the answers, and release the other messages of these clients."""
        self._idle += 1
        self._in_progress -= len(batch)
        for queued, answer in zip(batch, work.result(), strict=True):
            self._schedule_reply(answer, queued.reply, None if queued.is_report else queued.since)
        for client in dict.fromkeys(queued.client for queued in batch):
            self._queue.release(client)
        self._schedule()

    def close(self) -> None:
        """Wait for batches in progress."""
        self._threads.shutdown()


def _mark_all(batch: Sequence[QueuedMessage]) -> Mark:
    """Marks the parts of a batch for each message that has a trace."""
    traced = [queued.mark for queued in batch if queued.mark is not no_mark]
    if not traced:
        return no_mark

    def mark_all(part: str) -> None:
        for mark in traced:
            mark(part)

    return mark_all


def make_batcher(service: Service) -> Batcher:
    """The batcher that fits the storage of a service."""
    return ThreadedBatcher(service) if service.storage.concurrency else Batcher(service)
