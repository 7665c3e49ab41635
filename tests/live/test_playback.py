"""Playback of an episode: which timesteps its frames show."""

from __future__ import annotations

import numpy as np

from townlet.live.messages import Message
from townlet.live.playback import Playback, TownEpisode
from townlet.live.protocol import Frame
from townlet.town.episode_recorder import FRAME_FIELDS, Recording, empty_arrays
from townlet.town.world.load import load

STEPS = 40


def episode() -> TownEpisode:
    """An episode of 40 steps whose ages are its timesteps."""
    world = load("town-l0")
    arrays = empty_arrays(world, STEPS + 1)
    states = {*FRAME_FIELDS, "meters"}
    arrays = {name: values if name in states else values[:STEPS] for name, values in arrays.items()}
    arrays["age"][:] = np.arange(STEPS + 1)
    arrays["mask"][:] = True
    recording = Recording(**arrays, cell_of=np.array([12], np.uint32))
    return TownEpisode(world, recording, "an episode", 0, 0, "values", "training")


def ages(messages: list[Message]) -> list[int]:
    """The timesteps of the only frame among the messages."""
    (frame,) = [message for message in messages if isinstance(message, Frame)]
    return list(frame.age)


def test_frame_repeats_timesteps_that_were_not_delivered() -> None:
    playback = Playback(lambda: None, speed=5.0)
    assert ages(playback.show(episode())) == [0]
    assert ages(playback.advance(0.4)) == [1, 2]
    playback.delivered = lambda: False  # the queued frame will be replaced by the next one
    assert ages(playback.advance(0.4)) == [1, 2, 3, 4]
    assert ages(playback.advance(0.2)) == [1, 2, 3, 4, 5]
    playback.delivered = lambda: True
    assert ages(playback.advance(0.4)) == [6, 7]
    playback.delivered = lambda: False
    assert ages(playback.seek(3)) == [3]  # not what was shown before
    assert ages(playback.advance(0.2)) == [3, 4]
