"""One function per library: a moment of its use on a town.

The lines between `# glue` and `# end` connect the library with the town; docs/interop.md shows them.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings

import gymnasium
import numpy as np
import torch
from outcome import ID, Outcome


def maskable_ppo(steps: int) -> Outcome:
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.callbacks import BaseCallback

    # glue
    from townlet.sb3 import make_vec

    envs = make_vec(ID, 64)
    # end

    class CountInvalid(BaseCallback):
        invalid = 0

        def _on_step(self) -> bool:
            masks = self.locals["action_masks"]
            self.invalid += int((~masks[np.arange(len(masks)), self.locals["actions"].reshape(-1)]).sum())
            return True

    count = CountInvalid()
    model = MaskablePPO("MlpPolicy", envs, n_steps=32, batch_size=512, n_epochs=2, device="cpu")
    model.learn(steps, callback=count)
    assert count.invalid == 0
    return Outcome(64, model.num_timesteps, "0 invalid actions")


def recurrent_ppo(steps: int) -> Outcome:
    from sb3_contrib import RecurrentPPO

    # glue
    from townlet.sb3 import make_vec

    envs = make_vec(ID, 16)
    # end
    model = RecurrentPPO("MlpLstmPolicy", envs, n_steps=32, batch_size=128, n_epochs=1, device="cpu")
    model.learn(min(steps, 2048))
    return Outcome(16, model.num_timesteps, "episodes end in the buffer")


def torchrl(steps: int) -> Outcome:
    from torchrl.envs import ActionMask, GymEnv, TransformedEnv

    # glue
    env = GymEnv(ID, num_envs=8, mask_observation=True)
    env = TransformedEnv(env, ActionMask())
    # end
    batch = env.rollout(min(steps, 1024) // 8, break_when_any_done=False)
    invalid = int((batch["action"].bool() & ~batch["action_mask"].bool()).sum())
    ends = int(batch["next", "done"].sum())
    assert invalid == 0
    assert ends
    return Outcome(8, batch.numel(), f"0 invalid actions, {ends} episodes")


def torchrl_infos(steps: int) -> Outcome:
    from torchrl.envs import GymEnv

    # glue
    env = GymEnv(ID, num_envs=8)  # with one environment: GymEnv(ID).auto_register_info_dict()
    # end
    single = GymEnv(ID).auto_register_info_dict()
    assert set(single.rollout(5)["next"].keys()) >= {"action_mask", "cause", "reward_milestone"}
    played = env.rollout(min(steps, 1024) // 8, break_when_any_done=False)
    assert {"action_mask", "cause", "reward_milestone"} <= set(played["next"].keys())
    assert int((played["next", "cause"] >= 0).sum()) == int(played["next", "done"].sum()) > 0
    return Outcome(8, played.numel(), "infos are part of the data")


def tianshou(steps: int) -> Outcome:
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.utils.net.common import Net

    # glue
    envs = DummyVectorEnv([lambda: gymnasium.make(ID) for _ in range(8)])
    # end
    env = gymnasium.make(ID)
    net = Net(state_shape=env.observation_space.shape, action_shape=6, hidden_sizes=(64,))
    policy = DiscreteQLearningPolicy(model=net, action_space=env.action_space, eps_training=0.5)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3))
    buffer = VectorReplayBuffer(steps + 8, 8)
    collector = Collector(algorithm, envs, buffer)
    collector.reset()
    taken = min(steps, 4096)
    collector.collect(n_step=taken)
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tianshou.utils.torch_utils import policy_within_training_step

        with policy_within_training_step(policy):
            algorithm.update(buffer=buffer, sample_size=64)
    infos = buffer.info
    assert np.isfinite(infos["reward_milestone"]).all()
    return Outcome(8, len(buffer), "infos are in the buffer")


def minari(steps: int) -> Outcome:
    # glue
    from minari import DataCollector

    env = DataCollector(gymnasium.make(ID), record_infos=True)
    # end
    env.reset(seed=0)
    taken = min(steps, 1000)
    for _ in range(taken):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MINARI_DATASETS_PATH"] = folder
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = env.create_dataset("town/random-v0")
        episode = data[0]
        assert episode.infos["action_mask"].shape == (len(episode.rewards) + 1, 6)
        assert episode.infos["cause"][-1] >= 0
        again = data.recover_environment()
        assert again.reset(seed=0)[0].shape == (88,)
    return Outcome(1, taken, f"{data.total_episodes} episodes with infos")


def rllib(steps: int) -> Outcome:
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    # glue
    register_env("town", lambda settings: gymnasium.make(ID, **settings))
    config = PPOConfig().environment("town")
    # end
    config = config.env_runners(num_env_runners=0, num_envs_per_env_runner=4)
    config = config.training(train_batch_size=1024, minibatch_size=256, num_epochs=1)
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, num_cpus=1)
    try:
        algorithm = config.build_algo()
        result = algorithm.train()
        algorithm.stop()
    finally:
        ray.shutdown()
    return Outcome(4, int(result["num_env_steps_sampled_lifetime"]), "one training iteration")
