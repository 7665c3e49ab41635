"""A watched episode as an animated GIF."""

from __future__ import annotations

import io
import threading
from typing import Final

import numpy as np
from PIL import Image

from townlet.live.playback import TownEpisode
from townlet.live.rollout_worker import TooManyRollouts
from townlet.town.render import picture
from townlet.town.scene import Scene

MAX_FRAMES: Final = 150  # of a longer episode, every n-th timestep is drawn
FRAME_MILLISECONDS: Final = 120
END_MILLISECONDS: Final = 2000  # for which the last frame stays
COLORS: Final = 128  # shared by all frames
MAX_REQUESTS: Final = 4  # of viewers, drawn or waiting
SAMPLES: Final = 6  # frames from which the colors are chosen


class GifQueue:
    """Draws one GIF at a time, which takes seconds; few requests may wait, because each occupies a thread."""

    def __init__(self) -> None:
        self._places, self._lock = threading.BoundedSemaphore(MAX_REQUESTS), threading.Lock()

    def draw(self, episode: TownEpisode) -> bytes:
        """The GIF of an episode; refused while too many are waiting."""
        if not self._places.acquire(blocking=False):
            raise TooManyRollouts("too many GIFs are being drawn", "try again in a few seconds")
        try:
            with self._lock:
                return episode_gif(episode)
        finally:
            self._places.release()


def episode_gif(episode: TownEpisode) -> bytes:
    """The timesteps that were played so far, drawn as in the terminal's video."""
    last = len(episode.recording)
    steps = np.unique(np.linspace(0, last, min(MAX_FRAMES, last + 1)).round().astype(int)).tolist()
    frames = [picture.frame(_scene(episode, at)) for at in steps]
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
    ended = ("time ran out" if episode.cause == "time" else f"died: no {episode.cause} left") if over else ""
    known = min(at, len(r) - 1)
    return Scene(
        world=world, cell=int(r.cell[at]), meters=tuple(r.meters[at].tolist()), hour=int(r.hour[at]),
        age=int(r.age[at]), progress=int(r.progress[at]), using=int(r.using[at]),
        here=int(here[0]) if len(here) else len(world.affordances), cell_of=tuple(r.cell_of.tolist()),
        mask=tuple(r.mask[known].tolist()) if len(r) else (True,) * len(world.actions),
        action=int(r.actions[at - 1]) if at else None, reward=float(r.reward[at - 1]) if at else 0.0,
        components=tuple(r.components[at - 1].tolist()) if at else (), ended=ended,
    )  # fmt: skip
