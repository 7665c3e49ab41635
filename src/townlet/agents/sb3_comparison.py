"""Settings with which Townlet's agents and those of Stable-Baselines3 do equal work, for speed comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

GPU_RECIPE: Final = "town:ppo-gpu"  # for the benchmark on a GPU, which is not compared with Stable-Baselines3
HIDDEN: Final = (64, 64)
LR, GAMMA = 2.5e-4, 0.99
# PPO: one pass of the benchmark is a rollout and its update.
PPO_STEPS, EPOCHS, MINIBATCHES, PPO_MAX_GRAD_NORM = 128, 4, 4, 0.5
GAE_LAMBDA, CLIP, ENTROPY_COEF, VALUE_COEF = 0.95, 0.2, 0.01, 0.5
# DQN: one pass is DQN_STEPS vector steps, with a gradient step after each.
DQN_STEPS, BATCH_SIZE, REPLAY, WARMUP, TARGET_EVERY, EPSILON, DQN_MAX_GRAD_NORM = 64, 256, 100_000, 1000, 500, 0.1, 10.0


@dataclass(frozen=True)
class Sb3Comparison:
    """Settings with which an agent of Stable-Baselines3 and Townlet's agent do the same work."""

    sb3_class: str  # name of the class in stable_baselines3
    activation: str
    updates: int  # calls of `learn` in one pass of the benchmark
    steps: int  # vector steps in one pass
    overrides: Mapping[str, Any]  # for Townlet's recipe
    sb3_arguments: Mapping[str, Any]  # arguments of the class in stable_baselines3
    sb3_arguments_per_row: Mapping[str, float]  # further arguments, to be multiplied by the number of rows
    reported: Mapping[str, Any]  # settings stated with the results


SB3_COMPARISONS: Final = {
    "ppo": Sb3Comparison(
        sb3_class="PPO",
        activation="tanh",
        updates=1,
        steps=PPO_STEPS,
        overrides={
            "network.activation": "tanh",
            "agent.n_steps": PPO_STEPS,
            "agent.epochs": EPOCHS,
            "agent.batch_size": 1 / MINIBATCHES,
            "agent.gae_lambda": GAE_LAMBDA,
            "agent.clip": CLIP,
            "agent.entropy_coef": ENTROPY_COEF,
            "agent.value_coef": VALUE_COEF,
            "agent.max_grad_norm": PPO_MAX_GRAD_NORM,
            "agent.shared": False,
        },
        sb3_arguments={
            "n_steps": PPO_STEPS,
            "n_epochs": EPOCHS,
            "gae_lambda": GAE_LAMBDA,
            "clip_range": CLIP,
            "ent_coef": ENTROPY_COEF,
            "vf_coef": VALUE_COEF,
            "max_grad_norm": PPO_MAX_GRAD_NORM,
        },
        sb3_arguments_per_row={"batch_size": PPO_STEPS / MINIBATCHES},
        reported={"n_steps": PPO_STEPS, "epochs": EPOCHS, "minibatches": MINIBATCHES, "activation": "tanh"},
    ),
    "dqn": Sb3Comparison(
        sb3_class="DQN",
        activation="relu",
        updates=DQN_STEPS,
        steps=DQN_STEPS,
        overrides={
            "agent.batch_size": BATCH_SIZE,
            "agent.replay": REPLAY,
            "agent.warmup": WARMUP,
            "agent.target_every": TARGET_EVERY,
            "agent.update_every": 1,
            "agent.gradient_steps": 1,
            "agent.n_step": 1,
            "agent.loss": "huber",
            "agent.double": False,
            "agent.dueling": False,
            "agent.prioritized": None,
            "agent.max_grad_norm": DQN_MAX_GRAD_NORM,
            "explore.action_selection.schedule": EPSILON,
        },
        sb3_arguments={
            "batch_size": BATCH_SIZE,
            "buffer_size": REPLAY,
            "learning_starts": WARMUP,
            "train_freq": 1,
            "gradient_steps": 1,
            "exploration_initial_eps": EPSILON,
            "exploration_final_eps": EPSILON,
            "max_grad_norm": DQN_MAX_GRAD_NORM,
        },
        sb3_arguments_per_row={"target_update_interval": TARGET_EVERY},
        reported={
            "batch_size": BATCH_SIZE,
            "replay": REPLAY,
            "updates_per_vector_step": 1,
            "target_every": TARGET_EVERY,
            "activation": "relu",
            "double": False,
            "dueling": False,
        },
    ),
}
