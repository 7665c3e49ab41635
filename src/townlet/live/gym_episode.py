"""Pictures small enough to be sent one by one: what an environment shows, and what an agent is shown of it."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from townlet.agents.settings import AdvantageEstimate
from townlet.interfaces.layout import Block, ObservationLayout
from townlet.interfaces.vec_env import Actions, Continuous, Discrete
from townlet.recipes.schema import Recipe

if TYPE_CHECKING:
    from townlet.tasks.gym_rollout import Moment

MAX_SIDE: Final = 640  # pixels of the longer side of a frame; larger ones are made smaller
QUALITY: Final = 85
RGB: Final = 3  # channels


def encode_frame(pixels: NDArray[np.uint8]) -> bytes:
    """A rendered moment [H, W, 3] as JPEG."""
    image = Image.fromarray(pixels)
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    return _encode(image, "JPEG", quality=QUALITY, subsampling=0)  # thin lines of one colour keep it


def image_count(block: Block, stacked: int) -> int:
    """How many pictures beside each other a block holds: a stack in colour has three channels for each."""
    channels = block.shape[0]
    return channels // RGB if channels == RGB * stacked else channels


def encode_observation(block: Block, obs: NDArray[Any], stacked: int) -> bytes:
    """A block of an observation [D] as PNG: its pictures beside each other, the oldest on the left."""
    channels, height, width = block.shape
    many = image_count(block, stacked)
    share = (obs[block.slice].reshape(block.shape) - block.low) / ((block.high - block.low) or 1.0)
    grey = np.clip(np.nan_to_num(share) * 255, 0, 255).astype(np.uint8).reshape(many, channels // many, height, width)
    beside = grey.transpose(2, 0, 3, 1).reshape(height, many * width, channels // many)
    return _encode(Image.fromarray(beside.squeeze(-1) if many == channels else beside), "PNG", compress_level=1)


def _encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


MAX_COMPONENTS: Final = 64  # numbers of an observation that a page is told; all are in the table that is saved
DIGITS: Final = 6
OUTPUTS: Final = {"values": "q", "means": "mean", "deviations": "deviation", "probabilities": "probability"}
EndReason = Literal["terminated", "truncated", "stopped"]


def gae_advantages(
    rewards: NDArray[Any], values: NDArray[Any], judge: AdvantageEstimate, terminated: bool
) -> NDArray[np.float64]:
    """Of steps [T], from values [T + 1] of all moments; what is terminated has nothing more to expect."""
    found = np.zeros(len(rewards))
    follows = 0.0
    for step in reversed(range(len(rewards))):
        after = 0.0 if terminated and step == len(rewards) - 1 else values[step + 1]
        delta = rewards[step] * judge.scale + judge.gamma * after - values[step]
        found[step] = follows = delta + judge.gamma * (judge.lam or 0.0) * follows
    return found


class GymEpisode:
    """Grows while it is rolled out in another thread: `known` moments may be read, and each is written once."""

    def __init__(self, key: str, run: str, checkpoint: str, who: str, seed: int, greedy: bool) -> None:
        self.key, self.run, self.checkpoint, self.who, self.seed, self.greedy = key, run, checkpoint, who, seed, greedy
        self.asked = time.monotonic()  # when somebody looked last
        self.known = 0
        self.ended: EndReason | None = None
        self.problem = ""  # why it could not be rolled out
        self.unseen = ""  # why there are no pictures
        self.frames: list[bytes] = []
        self.seen: dict[str, list[bytes]] = {}  # of blocks that are pictures
        self.room = 0  # bytes of pictures
        self.values: list[float] = []
        self._obs: list[NDArray[np.float32]] = []
        self._actions: list[list[float]] = []
        self._outputs: dict[str, list[list[float]]] = {}
        self._rewards: list[float] = []
        self._can: Actions = Discrete(())
        self._judge = AdvantageEstimate(1.0, None, 1.0, "")
        self._drawn: list[Block] = []
        self._told: list[Block] = []
        self._stacked = 1

    def cast(self, layout: ObservationLayout, actions: Actions, recipe: Recipe) -> None:
        """Who plays is known now, before the first moment."""
        self._can, self._judge = actions, recipe.agent.advantage()
        self._stacked = recipe.gym.frame_stack if recipe.gym else 1
        self._drawn = [block for block in layout if block.kind == "picture"]
        self._told = [block for block in layout if block.kind != "picture"]
        self.seen = {block.name: [] for block in self._drawn}

    @property
    def title(self) -> str:
        """For the name of a file."""
        return f"{self.run}-{self.checkpoint}-seed-{self.seed}{'' if self.greedy else '-drawn'}"

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.ended is not None or bool(self.problem)

    def add(self, moment: Moment) -> None:
        """One more moment, and the step that led to it."""
        if moment.led is not None:
            action = np.atleast_1d(moment.led.action).astype(np.float64)
            if isinstance(self._can, Continuous):
                action = action.clip(self._can.low, self._can.high)  # as the environment takes it
            self._actions.append(action.tolist())
            self._rewards.append(moment.led.reward)
            for name, part in moment.led.outputs.items():
                self._outputs.setdefault(name, []).append(part.astype(np.float64).tolist())
        self._obs.append(np.concatenate([np.zeros(0, np.float32), *(moment.obs[b.slice] for b in self._told)]))
        if moment.frame is not None:
            self._keep(self.frames, encode_frame(moment.frame))
        for block in self._drawn:
            self._keep(self.seen[block.name], encode_observation(block, moment.obs, self._stacked))
        self.known += 1

    def _keep(self, into: list[bytes], picture: bytes) -> None:
        into.append(picture)
        self.room += len(picture)

    @property
    def components(self) -> list[str]:
        """What the numbers of an observation are called."""
        return [name for block in self._told for name in _component_names(block)]

    @property
    def outputs_are(self) -> list[str]:
        """What stands behind an action: the most telling first."""
        known = [name for name in OUTPUTS if name in self._outputs]
        return known[:1] if known[:1] == ["values"] else known  # of values the highest is taken: no more to say

    def about(self) -> dict[str, Any]:
        """What does not change while it grows."""
        can, names = self._can, self.components
        return {
            "episode": self.key, "checkpoint": self.checkpoint, "who": self.who, "seed": self.seed,
            "greedy": self.greedy,
            "actions": list(can.names), "chosen": "one" if isinstance(can, Discrete) else "each",
            "components": names[:MAX_COMPONENTS], "more": max(0, len(names) - MAX_COMPONENTS),
            "pictures": [
                {"name": b.name, "looks": image_count(b, self._stacked), "height": b.shape[1], "width": b.shape[2]}
                for b in self._drawn
            ],
            "advantage": self._judge.text,
        }  # fmt: skip

    def part(self, since: int) -> dict[str, Any]:
        """Moments from `since` on, as columns; advantages once all is known."""
        known, over = self.known, self.over
        steps = slice(since, max(0, known - 1))
        return {
            "since": since, "known": known, "ended": self.ended, "problem": self.problem, "unseen": self.unseen,
            "drawn": len(self.frames), "outputs_are": self.outputs_are,
            "obs": [_json_numbers(row[:MAX_COMPONENTS]) for row in self._obs[since:known]],
            "actions": [_json_numbers(row) for row in self._actions[steps]],
            "outputs": {name: [_json_numbers(row) for row in self._outputs[name][steps]] for name in self.outputs_are},
            "rewards": _json_numbers(self._rewards[steps]),
            "values": _json_numbers(self.values) if over else [],
            "advantages": _json_numbers(self.advantages()) if over else [],
        }  # fmt: skip

    def advantages(self) -> list[float]:
        """Of all steps; none while it grows, or where no values were learned."""
        if self._judge.lam is None or len(self.values) != self.known or self.known < 2:
            return []
        rewards, values = np.asarray(self._rewards), np.asarray(self.values)
        return list(gae_advantages(rewards, values, self._judge, self.ended == "terminated").tolist())

    @property
    def judged(self) -> bool:
        """Whether the agent has learned what moments are worth."""
        return self._judge.lam is not None

    def as_csv(self) -> str:
        """All of it as a table: a row for each moment, with the step that was made there."""
        out = io.StringIO()
        table = csv.writer(out, lineterminator="\n")
        can, names = self._can, self.outputs_are
        acts = ["action"] if isinstance(can, Discrete) else [f"action {name}" for name in can.names]
        heads = [f"{OUTPUTS[one]} {name}" for one in names for name in can.names]
        table.writerow(["step", *acts, *heads, "reward", "return", "value", "advantage", *self.components])
        judged, total = self.advantages(), 0.0
        for at in range(self.known):
            led: list[Any] = [""] * (len(acts) + len(heads) + 2)
            if at < len(self._rewards):
                total += self._rewards[at]
                done = self._actions[at]
                led = [can.names[int(done[0])]] if isinstance(can, Discrete) else list(done)
                led += [value for name in names for value in self._outputs[name][at]]
                led += [self._rewards[at], total]
            value = self.values[at] if at < len(self.values) else ""
            worth = judged[at] if at < len(judged) else ""
            table.writerow([at, *led, value, worth, *self._obs[at].tolist()])
        return out.getvalue()


def _component_names(block: Block) -> list[str]:
    """The names of a block's numbers: its own, with their places where there are several."""
    if block.size == 1:
        return [block.name]
    return [f"{block.name}[{','.join(map(str, place))}]" for place in np.ndindex(*block.shape)]


def _json_numbers(values: Iterable[float]) -> list[float | None]:
    """Numbers as JSON has them; what is none of them is null."""
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values]
