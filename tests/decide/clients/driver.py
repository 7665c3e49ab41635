"""Driver of the Python clients: `driver.py async` or `driver.py sync`. `test_vectors.py` describes input and output."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from concurrent.futures import Future

from townlet.decide.client import Client
from townlet.decide.sync_client import SyncClient


def steps(lines: list[str]) -> Iterator[list[dict[str, object]]]:
    step: list[dict[str, object]] = []
    for line in lines:
        if line:
            step.append(json.loads(line))
        else:
            yield step
            step = []


def show(answer: object) -> None:
    print(f"! {answer}" if isinstance(answer, BaseException) else json.dumps(answer))


async def run_async(url: str, token: str, timeout: float, lines: list[str]) -> int:
    async with Client(url, token, timeout) as client:
        for step in steps(lines):
            answers = [client.request(message) for message in step]
            for answer in await asyncio.gather(*answers, return_exceptions=True):
                show(answer)
    try:
        await client.request({"type": "ping"})
    except ConnectionError as error:
        show(error)
    return client.connections


def run_sync(url: str, token: str, timeout: float, lines: list[str]) -> int:
    with SyncClient(url, token, timeout) as client:
        for step in steps(lines):
            pending: list[Future[dict[str, object]]] = [client.submit(message) for message in step]
            for answer in pending:
                show(answer.exception() or answer.result())
    try:
        client.request({"type": "ping"})
    except ConnectionError as error:
        show(error)
    return client.connections


if __name__ == "__main__":
    url, token, milliseconds, *lines = sys.stdin.buffer.read().decode().split("\n")
    seconds = int(milliseconds) / 1000
    if sys.argv[1] == "async":
        connections = asyncio.run(run_async(url, token, seconds, lines))
    else:
        connections = run_sync(url, token, seconds, lines)
    print("connections", connections)
