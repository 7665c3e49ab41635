"""All vector wrappers of Gymnasium, applied to `gymnasium.make_vec`."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from typing import Any, Final

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import TransformAction as OneAction
from gymnasium.wrappers import TransformObservation as OneObservation
from gymnasium.wrappers import TransformReward as OneReward
from gymnasium.wrappers import vector
from outcome import ID, Outcome, repeat_for

CONTINUOUS_ONLY: Final = {"ClipAction", "RescaleAction"}  # refuse discrete actions, whatever the environment


def make(**settings: Any) -> Any:
    # glue
    return gymnasium.make_vec(ID, 8, **settings)
    # end


def image(env: Any) -> Any:
    """Observations as tiny pictures, for the wrappers of images."""
    space = gymnasium.spaces.Box(0, 255, (8, 11, 3), np.uint8)
    draw = lambda obs: np.repeat((obs.reshape(8, 11, 1) * 255).astype(np.uint8), 3, 2)  # noqa: E731
    return vector.VectorizeTransformObservation(env, OneObservation, func=draw, observation_space=space)


WRAPPERS: Final[dict[str, Callable[[], Any]]] = {
    "TransformObservation": lambda: vector.TransformObservation(make(), lambda obs: obs * 2),
    "VectorizeTransformObservation": lambda: image(make()),
    "FilterObservation": lambda: vector.FilterObservation(make(mask_observation=True), ["observation"]),
    "FlattenObservation": lambda: vector.FlattenObservation(make(mask_observation=True)),
    "GrayscaleObservation": lambda: vector.GrayscaleObservation(image(make())),
    "ResizeObservation": lambda: vector.ResizeObservation(image(make()), (16, 22)),
    "ReshapeObservation": lambda: vector.ReshapeObservation(make(), (8, 11)),
    "RescaleObservation": lambda: vector.RescaleObservation(make(), -1.0, 1.0),
    "DtypeObservation": lambda: vector.DtypeObservation(make(), np.float64),
    "NormalizeObservation": lambda: vector.NormalizeObservation(make()),
    "TransformAction": lambda: vector.TransformAction(make(), lambda action: action),
    "VectorizeTransformAction": lambda: vector.VectorizeTransformAction(
        make(), OneAction, func=lambda action: action, action_space=gymnasium.spaces.Discrete(6)
    ),
    "TransformReward": lambda: vector.TransformReward(make(), lambda reward: reward * 2),
    "VectorizeTransformReward": lambda: vector.VectorizeTransformReward(
        make(), OneReward, func=lambda reward: reward * 2
    ),
    "ClipReward": lambda: vector.ClipReward(make(), -1, 1),
    "NormalizeReward": lambda: vector.NormalizeReward(make()),
    "RecordEpisodeStatistics": lambda: vector.RecordEpisodeStatistics(make()),
    "DictInfoToList": lambda: vector.DictInfoToList(make()),
    "RecordVideo": lambda: vector.RecordVideo(
        make(render_mode="rgb_array"), tempfile.mkdtemp(), episode_trigger=lambda _: False
    ),
    "HumanRendering": lambda: vector.HumanRendering(make(render_mode="rgb_array")),
    "ArrayConversion": lambda: vector.ArrayConversion(make(), np, np),
    "NumpyToTorch": lambda: vector.NumpyToTorch(make()),
    "JaxToNumpy": lambda: vector.JaxToNumpy(make()),
    "JaxToTorch": lambda: vector.JaxToTorch(make()),
}
TORCH_ACTIONS: Final = {"NumpyToTorch", "JaxToTorch"}
SLOW: Final = {"HumanRendering"}  # draws every step at the frame rate of the town


def vector_wrappers(seconds: float) -> Outcome:
    missing = {*vector.__all__} ^ {*WRAPPERS, *CONTINUOUS_ONLY}
    assert not missing, missing
    taken = 0
    for name, wrap in WRAPPERS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = wrap()
            env.reset(seed=0)
            actions: Any = np.full(8, 3)
            for _ in repeat_for(seconds / len(WRAPPERS)):
                for _ in range(5 if name in SLOW else 110):  # walking right kills at step 100
                    taken += 8
                    env.step(torch.from_numpy(actions) if name in TORCH_ACTIONS else actions)
            env.close()
    return Outcome(8, taken, f"{len(WRAPPERS)} of {len(vector.__all__)}; {len(CONTINUOUS_ONLY)} need Box actions")
