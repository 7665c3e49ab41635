"""How fast PPO plays and learns on a device, round by round: `python benchmarks/rounds.py`.

A round is all that training does but for the log: policy, draws, town, storage, advantages and epochs of the update.
The first one compiles everything and is told apart.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from sim import machine, short
from townlet.train.bench import Silent
from townlet.train.build import build
from townlet.train.collect import collect
from townlet.train.load import load


def seconds(work: Callable[[], object], device: str) -> float:
    """How long it takes until the device is done."""
    begun = time.perf_counter()
    work()
    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun


def measure(rows: int, epochs: int, o: argparse.Namespace) -> str:
    """A line of the table."""
    words = [f"device={o.device}", f"rows={rows}", f"agent.epochs={epochs}", f"agent.batch_size={1 / o.minibatches}"]
    t, ear = build(load(o.recipe, [*words, *o.words])), Silent()

    def play() -> None:
        collect(t, t.agent.round, ear)

    first = seconds(play, o.device) + seconds(t.agent.learn, o.device)
    rounds = [(seconds(play, o.device), seconds(t.agent.learn, o.device)) for _ in range(o.rounds)]
    played, learned = (statistics.median(column) for column in zip(*rounds, strict=True))
    rate = short(rows * t.agent.round / (played + learned))
    return f"| {rows:,} | {epochs} | {played * 1000:.1f} ms | {learned * 1000:.1f} ms | {rate} | {first:.1f} s |"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("words", nargs="*", help="further keys, like agent.n_steps=64")
    parser.add_argument("--recipe", default="town:ppo-gpu")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, nargs="+", default=[65536, 262144])
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--minibatches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=12)
    return parser.parse_args()


def main() -> None:
    o = parse()
    print(", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    print("| rows | epochs | round | update | steps/s | first round |\n|---:|---:|---:|---:|---:|---:|", flush=True)
    for rows in o.rows:
        for epochs in o.epochs:
            print(measure(rows, epochs, o), flush=True)


if __name__ == "__main__":
    main()
