"""An episode of a Gymnasium run for the inspector: the numbers of each step, and encoded images of each timestep."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from townlet.agents.settings import AdvantageEstimate
from townlet.interfaces.layout import Block, ObservationLayout
from townlet.interfaces.vec_env import Actions, Continuous, Discrete
from townlet.recipes.schema import Recipe

if TYPE_CHECKING:
    from townlet.tasks.gym_playback import RolloutFrame  # imports Gymnasium, which towns do not need

MAX_SIDE: Final = 640  # pixels of a frame's longer side; larger frames are scaled down
JPEG_QUALITY: Final = 85
RGB: Final = 3  # channels
MAX_COLUMNS: Final = 64  # numbers of an observation sent to the page; the CSV contains all
DIGITS: Final = 6
# Policy outputs and their names in the CSV, the most informative first.
OUTPUTS: Final = {"values": "q", "means": "mean", "stds": "std", "probabilities": "probability"}
EndReason = Literal["terminated", "truncated", "stopped"]


def encode_frame(pixels: NDArray[np.uint8]) -> bytes:
    """A rendered frame [H, W, 3] as JPEG."""
    image = Image.fromarray(pixels)
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    return _encode(image, "JPEG", quality=JPEG_QUALITY, subsampling=0)  # subsampling would blur thin colored lines


def image_count(block: Block, frame_stack: int) -> int:
    """Number of images in a block: a stack of RGB frames has three channels per image."""
    channels = block.shape[0]
    return channels // RGB if channels == RGB * frame_stack else channels


def encode_observation(block: Block, obs: NDArray[Any], frame_stack: int) -> bytes:
    """An image block of an observation [D] as PNG: its images side by side, oldest on the left."""
    channels, height, width = block.shape
    images = image_count(block, frame_stack)
    scaled = (obs[block.slice].reshape(block.shape) - block.low) / ((block.high - block.low) or 1.0)
    pixels = np.clip(np.nan_to_num(scaled) * 255, 0, 255).astype(np.uint8)
    pixels = pixels.reshape(images, channels // images, height, width).transpose(2, 0, 3, 1)
    row = pixels.reshape(height, images * width, channels // images)
    return _encode(Image.fromarray(row.squeeze(-1) if images == channels else row), "PNG", compress_level=1)


class Feature(NamedTuple):
    """One number of an observation, with its columns in the stacked frames, oldest first."""

    name: str
    columns: list[int]

    @property
    def column_names(self) -> list[str]:
        """A name for each column: t is the newest frame, t-1 the one before."""
        frames = len(self.columns)
        return [self.name] if frames == 1 else [f"{self.name} t{-age or ''}" for age in reversed(range(frames))]


def features(block: Block, frame_stack: int) -> list[Feature]:
    """The numbers of a block: its name, with an index if there are several. Stacked frames are on the first axis."""
    stacked = frame_stack > 1 and len(block.shape) > 1 and block.shape[0] == frame_stack
    frames, shape = (frame_stack, block.shape[1:]) if stacked else (1, block.shape)
    columns = np.asarray(block.columns).reshape(frames, -1).T.tolist()
    indices = [f"[{','.join(map(str, index))}]" for index in np.ndindex(*shape)] if len(columns) > 1 else [""]
    return [Feature(block.name + index, own) for index, own in zip(indices, columns, strict=True)]


def _encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def gae_advantages(
    rewards: NDArray[Any], values: NDArray[Any], estimate: AdvantageEstimate, terminated: bool
) -> NDArray[np.float64]:
    """GAE of steps [T] from values [T + 1]; the value after a terminal step is 0."""
    advantages = np.zeros(len(rewards))
    next_advantage = 0.0
    for step in reversed(range(len(rewards))):
        next_value = 0.0 if terminated and step == len(rewards) - 1 else values[step + 1]
        delta = rewards[step] * estimate.scale + estimate.gamma * next_value - values[step]
        next_advantage = delta + estimate.gamma * (estimate.lam or 0.0) * next_advantage
        advantages[step] = next_advantage
    return advantages


class GymEpisode:
    """An episode that the worker thread fills while others read; its first `known` timesteps are complete and final."""

    def __init__(self, key: str, run: str, checkpoint: str, label: str, seed: int, greedy: bool) -> None:
        self.key, self.run, self.checkpoint, self.label = key, run, checkpoint, label
        self.seed, self.greedy = seed, greedy
        self.last_request = time.monotonic()
        self.known = 0
        self.ended: EndReason | None = None
        self.error = ""  # why it could not be rolled out
        self.render_problem = ""  # why there are no frames
        self.frames: list[bytes] = []
        self.observations: dict[str, list[bytes]] = {}  # encoded images by block
        self.image_bytes = 0
        self.values: list[float] = []
        self._obs: list[NDArray[np.float32]] = []
        self._actions: list[list[float]] = []
        self._outputs: dict[str, list[list[float]]] = {}
        self._rewards: list[float] = []
        self._action_space: Actions = Discrete(())
        self._estimate = AdvantageEstimate(1.0, None, 1.0, "")
        self._image_blocks: list[Block] = []
        self._features: list[Feature] = []
        self._columns: list[int] = []  # of all features, in order
        self._frame_stack = 1

    def prepare(self, layout: ObservationLayout, actions: Actions, recipe: Recipe) -> None:
        """Set the spaces of the environment, before the first timestep."""
        self._action_space, self._estimate = actions, recipe.agent.displayed_advantage()
        self._frame_stack = recipe.gym.frame_stack if recipe.gym else 1
        self._image_blocks = [block for block in layout if block.kind == "picture"]
        numbers = [block for block in layout if block.kind != "picture"]
        self._features = [feature for block in numbers for feature in features(block, self._frame_stack)]
        self._columns = [column for feature in self._features for column in feature.columns]
        self.observations = {block.name: [] for block in self._image_blocks}

    @property
    def title(self) -> str:
        return f"{self.run}-{self.checkpoint}-seed-{self.seed}{'' if self.greedy else '-sampled'}"

    @property
    def over(self) -> bool:
        """Whether it is complete or has failed."""
        return self.ended is not None or bool(self.error)

    def add(self, frame: RolloutFrame) -> None:
        """Append a timestep and the transition that led to it."""
        if frame.transition is not None:
            action = np.atleast_1d(frame.transition.action).astype(np.float64)
            if isinstance(self._action_space, Continuous):
                action = action.clip(self._action_space.low, self._action_space.high)  # as the environment receives it
            self._actions.append(action.tolist())
            self._rewards.append(frame.transition.reward)
            for name, output in frame.transition.outputs.items():
                self._outputs.setdefault(name, []).append(output.astype(np.float64).tolist())
        self._obs.append(frame.obs[self._columns])
        if frame.image is not None:
            self._add_image(self.frames, encode_frame(frame.image))
        for block in self._image_blocks:
            self._add_image(self.observations[block.name], encode_observation(block, frame.obs, self._frame_stack))
        self.known += 1

    def _add_image(self, images: list[bytes], image: bytes) -> None:
        images.append(image)
        self.image_bytes += len(image)

    @property
    def column_names(self) -> list[str]:
        """Names of the numbers in an observation; the stacked frames of a feature are adjacent."""
        return [name for feature in self._features for name in feature.column_names]

    @property
    def output_kinds(self) -> list[str]:
        """The policy outputs to show, most informative first."""
        if "values" in self._outputs:  # a value-based policy is determined by its values
            return ["values"]
        return [name for name in OUTPUTS if name in self._outputs]

    def about(self) -> dict[str, Any]:
        """What is known before the first timestep, as JSON."""
        actions, names = self._action_space, self.column_names
        return {
            "episode": self.key, "checkpoint": self.checkpoint, "label": self.label, "seed": self.seed,
            "greedy": self.greedy,
            "actions": list(actions.names), "discrete": isinstance(actions, Discrete),
            "features": [{"name": feature.name, "frames": len(feature.columns)} for feature in self._features],
            "columns": names[:MAX_COLUMNS], "omitted": max(0, len(names) - MAX_COLUMNS),
            "images": [
                {"name": b.name, "count": image_count(b, self._frame_stack), "height": b.shape[1], "width": b.shape[2]}
                for b in self._image_blocks
            ],
            "advantage": self._estimate.text,
        }  # fmt: skip

    def part(self, since: int) -> dict[str, Any]:
        """Timesteps from `since` on as columns; values and advantages of all timesteps once the episode is over."""
        known, over = self.known, self.over
        steps = slice(since, max(0, known - 1))
        return {
            "since": since, "known": known, "ended": self.ended, "error": self.error,
            "render_problem": self.render_problem, "frames": len(self.frames), "output_kinds": self.output_kinds,
            "obs": [_json_numbers(row[:MAX_COLUMNS]) for row in self._obs[since:known]],
            "actions": [_json_numbers(row) for row in self._actions[steps]],
            "outputs": {name: [_json_numbers(row) for row in self._outputs[name][steps]] for name in self.output_kinds},
            "rewards": _json_numbers(self._rewards[steps]),
            "values": _json_numbers(self.values) if over else [],
            "advantages": _json_numbers(self.advantages()) if over else [],
        }  # fmt: skip

    def advantages(self) -> list[float]:
        """Advantages of all steps; empty while the episode is incomplete or if the agent has no value function."""
        if not self.has_values or len(self.values) != self.known or self.known < 2:
            return []
        rewards, values = np.asarray(self._rewards), np.asarray(self.values)
        return list(gae_advantages(rewards, values, self._estimate, self.ended == "terminated").tolist())

    @property
    def has_values(self) -> bool:
        """Whether the agent learns a value function."""
        return self._estimate.lam is not None

    def as_csv(self) -> str:
        """One line per timestep, with the step taken there."""
        space, kinds = self._action_space, self.output_kinds
        discrete = isinstance(space, Discrete)
        action_names = ["action"] if discrete else [f"action {name}" for name in space.names]
        output_names = [f"{OUTPUTS[kind]} {name}" for kind in kinds for name in space.names]
        header = ["step", *action_names, *output_names, "reward", "return", "value", "advantage", *self.column_names]
        rows: list[list[Any]] = [header]
        advantages, total = self.advantages(), 0.0
        for at in range(self.known):
            step: list[Any] = [""] * (len(action_names) + len(output_names) + 2)
            if at < len(self._rewards):
                total += self._rewards[at]
                action: list[Any] = self._actions[at]
                outputs = [value for kind in kinds for value in self._outputs[kind][at]]
                step = [*([space.names[int(action[0])]] if discrete else action), *outputs, self._rewards[at], total]
            value = self.values[at] if at < len(self.values) else ""
            advantage = advantages[at] if at < len(advantages) else ""
            rows.append([at, *step, value, advantage, *self._obs[at].tolist()])
        return csv_text(rows)


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def _json_numbers(values: Iterable[float]) -> list[float | None]:
    """Numbers rounded to `DIGITS` significant digits; None if not finite."""
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values]
