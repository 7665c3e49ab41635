"""A watched episode as an animated GIF."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from typing import Final

import numpy as np
from PIL import Image

from townlet.live.playback import TownEpisode
from townlet.live.rollout_worker import TooManyRollouts
from townlet.town.render import picture
from townlet.town.scene import Scene
from townlet.town.state import OUT_OF_TIME

MAX_FRAMES: Final = 80  # of a longer episode, every n-th timestep is drawn
WIDTH: Final = 480  # pixels
FRAME_MILLISECONDS: Final = 160
END_MILLISECONDS: Final = 2000  # for which the last frame stays
COLORS: Final = 128  # shared by all frames
SAMPLES: Final = 6  # frames from which the colors are chosen
CACHED_GIFS: Final = 8


class GifRenderer:
    """Makes one GIF at a time, for all viewers, and keeps the latest ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gifs: OrderedDict[tuple[int, int], bytes] = OrderedDict()  # by episode and its length

    def gif(self, episode: TownEpisode) -> bytes:
        """The timesteps that were played so far."""
        key = episode.id, len(episode.recording)
        if key in self._gifs:
            return self._gifs[key]
        if not self._lock.acquire(blocking=False):
            raise TooManyRollouts("another GIF is being made", "try again in a few seconds")
        try:
            data = self._gifs[key] = episode_gif(episode)
            if len(self._gifs) > CACHED_GIFS:
                self._gifs.popitem(last=False)
            return data
        finally:
            self._lock.release()


def episode_gif(episode: TownEpisode) -> bytes:
    """The timesteps that were played so far, drawn as in the terminal's video."""
    last = len(episode.recording)
    steps = np.unique(np.linspace(0, last, min(MAX_FRAMES, last + 1)).round().astype(int)).tolist()
    frames = [picture.frame(_scene(episode, at), WIDTH) for at in steps]
    samples = np.concatenate([frames[at] for at in np.linspace(0, len(frames) - 1, SAMPLES).astype(int)])
    palette = Image.fromarray(samples).quantize(COLORS)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [FRAME_MILLISECONDS] * (len(images) - 1) + [END_MILLISECONDS]
    out = io.BytesIO()
    images[0].save(out, "GIF", save_all=True, append_images=images[1:], duration=times, loop=0, optimize=False)
    return out.getvalue()


def _scene(episode: TownEpisode, at: int) -> Scene:
    """The scene of a recorded timestep."""
    r, world = episode.recording, episode.world
    here = np.flatnonzero(r.cell_of == r.cell[at]) if world.size else np.zeros(0, int)
    over = episode.over and at == len(r)
    ended = ("time ran out" if episode.cause == OUT_OF_TIME else f"died: no {episode.cause} left") if over else ""
    known = min(at, len(r) - 1)
    return Scene(
        world=world, cell=int(r.cell[at]), meters=tuple(r.meters[at].tolist()), hour=int(r.hour[at]),
        age=int(r.age[at]), progress=int(r.progress[at]), using=int(r.using[at]),
        here=int(here[0]) if len(here) else len(world.affordances), cell_of=tuple(r.cell_of.tolist()),
        mask=tuple(r.mask[known].tolist()) if len(r) else (True,) * len(world.actions),
        action=int(r.actions[at - 1]) if at else None, reward=float(r.reward[at - 1]) if at else 0.0,
        components=tuple(r.components[at - 1].tolist()) if at else (), ended=ended,
    )  # fmt: skip
