"""What a step costs by rows and by the size of the world: `python benchmarks/curves.py measure` and `… plot`.

`measure` appends one line of JSON for each size, so that machines can be measured one after the other; `plot` draws
all that is there. A town is varied in one thing at a time: more meters, more affordances or a larger map.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from sim import machine
from townlet.runs.plots import COLOURS, SETTINGS
from townlet.sim.bench import engine_subject, interleave
from townlet.world.load import load
from townlet.world.tables import World

ROWS: Final = tuple(1 << k for k in range(6, 23, 2))  # 2⁶ … 2²²
SIZES: Final = {"meters": (8, 16, 24, 31), "affordances": (15, 30, 60), "grid": (8, 16, 32)}
USUAL: Final = 16384  # rows where the world is varied, on a CPU
USUAL_GPU: Final = 1 << 18
KEPT: Final = Path(__file__).with_name("curves.jsonl")
DOCS: Final = Path(__file__).parents[1] / "docs"
ROUNDS: Final = 3
WHITE: Final[Any] = {"figure.facecolor": "white", "axes.facecolor": "white", **dict.fromkeys(
    ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), "#222222")}  # fmt: skip


def grown(what: str, size: int) -> World:
    """The standard town with more of one thing."""
    lines = ["extends: town"]
    if what == "grid":
        lines.append(f"map: {{size: [{size}, {size}]}}")
    elif what == "meters":
        lines.append("meters:")
        lines += [f"  - {{name: more{k}, start: 1.0, decay: .001, group: tertiary}}" for k in range(8, size)]
    else:
        lines += ["map: {size: [16, 16]}", "affordances:"]
        places = ((x, y) for y in range(8, 16) for x in range(16))
        more = zip(range(15, size), places, strict=False)
        lines += [f"  - {{name: More{k}, cell: [{x}, {y}], each_tick: {{mood: .01}}}}" for k, (x, y) in more]
    if lines[-1].endswith(":"):
        lines.pop()  # as many as there are already
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{what}-{size}.yaml"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return load(str(file))


def sizes(device: str) -> Iterator[tuple[str, int, World, int]]:
    """(what is varied, how much of it, the world, rows)."""
    town = load("town")
    for rows in ROWS:
        yield "rows", rows, town, rows
    for what, some in SIZES.items():
        for size in some:
            yield what, size, grown(what, size), USUAL if device == "cpu" else USUAL_GPU


def measure(engine: str, device: str, seconds: float, file: Path) -> None:
    about = machine()
    for what, size, world, rows in sizes(device):
        subject = engine_subject(world, rows, engine, 1 if device == "cpu" else None, device)
        found = interleave([subject], seconds, ROUNDS)[0].as_json()
        held = torch.cuda.max_memory_allocated() if device != "cpu" else None
        if device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        line = {"varied": what, "size": size, "seen": world.layout.size, "bytes": held, **found, "machine": about}
        with file.open("a", encoding="utf-8") as kept:
            kept.write(json.dumps(line) + "\n")
        print(f"{engine} on {device}, {what} {size}: {found['median_per_wall_s']:,.0f} steps/s", flush=True)
        del subject


def plot(file: Path) -> None:
    """`docs/cost-rows.svg`, and `docs/cost-world.svg` as ns for each step."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    found: dict[str, dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        name = f"{line['engine']} on {'a GPU' if line['device'] != 'cpu' else 'one core'}"
        found[line["varied"]][name].append((line["size"], line["median_per_wall_s"]))
    with matplotlib.rc_context({**SETTINGS, **WHITE}):
        figure = Figure((8, 4), layout="constrained")
        _rates(figure.subplots(), found["rows"])
        figure.savefig(DOCS / "cost-rows.svg")
        figure = Figure((9.6, 3.4), layout="constrained")
        for axes, what in zip(figure.subplots(1, len(SIZES)), SIZES, strict=True):
            _costs(axes, what, found[what])
        figure.savefig(DOCS / "cost-world.svg")


def _rates(axes: Axes, engines: dict[str, list[tuple[int, float]]]) -> None:
    for colour, (name, points) in zip(COLOURS, engines.items(), strict=False):
        x, y = zip(*sorted(points), strict=True)
        axes.loglog(x, y, "o-", color=colour, label=name)
    axes.set(xlabel="rows", ylabel="agent-steps in a second")
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.set_xscale("log", base=2)
    axes.legend(frameon=False)


def _costs(axes: Axes, what: str, engines: dict[str, list[tuple[int, float]]]) -> None:
    """Beside the smallest world: how many times as long a step takes."""
    for colour, (name, points) in zip(COLOURS, engines.items(), strict=False):
        x, y = zip(*sorted(points), strict=True)
        axes.plot(x, [y[0] / rate for rate in y], "o-", color=colour, label=name)
    axes.set(xlabel={"grid": "side of the map"}.get(what, what), ylim=(0, None))
    if what == "meters":
        axes.set_ylabel("times the time of a step")
        axes.legend(frameon=False, fontsize=8)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("what", choices=("measure", "plot"))
    parser.add_argument("--engine", default="numba", choices=("numba", "torch", "compiled"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each size")
    parser.add_argument("--file", type=Path, default=KEPT)
    return parser.parse_args(words)


def main() -> None:
    o = parse()
    if o.what == "plot":
        plot(o.file)
    else:
        measure(o.engine, o.device, o.seconds, o.file)


if __name__ == "__main__":
    main()
