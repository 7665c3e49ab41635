"""Videos of a training: evaluation episodes at its start, at every best and at its end.

They have an environment, a policy and random streams of their own, so that nothing learned depends on them.
"""

from __future__ import annotations

from contextlib import closing

from townlet.runs import disk, videos
from townlet.runs.folder import Run
from townlet.train.build import Training


def require_films(t: Training) -> None:
    """Refuse at once what could not be filmed later."""
    if t.recipe.video.episodes:
        videos.require_encoder()
        t.task.show(t.agent.policy(), t.recipe, t.recipe.device).close()


def film(run: Run, t: Training, why: videos.VideoReason) -> None:
    """A video of this moment, where the recipe asks for videos."""
    wanted = t.recipe.video
    if not wanted.episodes:
        return
    disk.make_folder(run.videos)
    path = run.videos / videos.video_name(t.counters.env_steps, why)
    with closing(t.task.show(t.agent.policy(), t.recipe, t.recipe.device)) as show:
        videos.record_video([show], path, episodes=wanted.episodes, steps=wanted.steps)
