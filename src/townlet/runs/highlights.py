"""Lives that a run has kept, as a part of its report: a list of all, and the first beside the longest as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from matplotlib.figure import Figure

from townlet.errors import TownletError
from townlet.runs.markup import Section
from townlet.runs.metrics_reader import MetricsReader, as_rows
from townlet.runs.plots import COLOURS, INK, WIDTH, Plot, draw, shortened
from townlet.town.episode_recorder import Recording
from townlet.town.state import OUT_OF_TIME

TABLE: Final = "recordings"
LISTED: Final = ("kind", "env_steps", "row", "stage", "length", "cause", "return")


class Life(NamedTuple):
    """A picture of one life: what is written above it, and its moments."""

    title: str
    moments: Recording


def kept_lives(store: MetricsReader, meters: Sequence[str]) -> Section | None:
    """All lives that were kept, in order; nothing where there is none."""
    found = store.read(TABLE, ("number", *LISTED))
    if not found["number"]:
        return None
    lengths = found["length"]
    chosen = dict.fromkeys([0, max(range(len(lengths)), key=lambda k: (lengths[k], k))])
    lives = [life for k in chosen if (life := _life(store, int(found["number"][k]), len(meters)))]
    staged = any(found["stage"])
    names = [name for name in LISTED if name != "stage" or staged]
    rows = [tuple(_cell(name, found[name][k]) for name in names) for k in range(len(lengths))]
    told = "A few lives are kept whole: the live page shows each of them again, step by step."
    drawn = [_picture(lives, meters)] if lives and meters else []
    header = [{"kind": "kept as", "cause": "ended by"}.get(name, name) for name in names]
    return Section("Lives that were kept", [told], header=header, rows=rows, plots=drawn)


def _cell(name: str, value: Any) -> str:
    if name == "return":
        return f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _life(store: MetricsReader, number: int, meters: int) -> Life | None:
    """One life with its title; None where it is damaged or of another world."""
    (row,) = as_rows(store.read(TABLE, where={"number": number}))
    try:
        moments = Recording.from_bytes(row["data"])
    except TownletError:
        return None
    if moments.meters.shape[1:] != (meters,):
        return None
    ended = "lived to the limit" if row["cause"] == OUT_OF_TIME else f"died without {row['cause']}"
    return Life(f"{row['kind']}, after {row['env_steps']:,} steps of training: {row['length']} steps, {ended}", moments)


def _picture(lives: Sequence[Life], meters: Sequence[str]) -> Plot:
    """Every meter over each life, one life below the other on the same scale."""

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(lives), 1, sharex=True, squeeze=False)
        for (title, moments), axes in zip(lives, grid[:, 0], strict=True):
            for m, name in enumerate(meters):
                colour = COLOURS[m % len(COLOURS)]
                axes.plot(moments.age, moments.meters[:, m], color=colour, linewidth=1.3, label=shortened(name))
            axes.axhline(0, color=INK, alpha=0.4, linewidth=1)
            axes.set_title(title, fontsize=10, loc="left")
            axes.set_ylim(-0.03, 1.03)
        grid[0, 0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        grid[-1, 0].set_xlabel("step of the life")

    return draw("kept", "meters over a life", (WIDTH, 0.6 + 2.2 * len(lives)), paint)
