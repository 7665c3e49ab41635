"""One function per library: its use on a town for some seconds.

The lines between `# glue` and `# end` connect the library with the town; docs/interop.md shows them.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from typing import Any

import gymnasium
import numpy as np
import torch
from outcome import ID, Outcome, repeat_for


def maskable_ppo(seconds: float) -> Outcome:
    from sb3_contrib import MaskablePPO

    # glue
    from townlet.sb3 import make_vec

    envs = make_vec(ID, 64)
    # end

    invalid = 0

    def count_invalid(given: dict[str, Any], _: Any) -> bool:
        nonlocal invalid
        masks = given["action_masks"]
        invalid += int((~masks[np.arange(len(masks)), given["actions"].reshape(-1)]).sum())
        return True

    model = MaskablePPO("MlpPolicy", envs, n_steps=32, batch_size=512, n_epochs=2, device="cpu")
    for turn in repeat_for(seconds):
        model.learn(8192, callback=count_invalid, reset_num_timesteps=turn == 0)
    assert invalid == 0
    length = np.mean([episode["l"] for episode in model.ep_info_buffer])
    return Outcome(64, model.num_timesteps, f"0 invalid actions; last 100 episodes: {length:.0f} steps")


def recurrent_ppo(seconds: float) -> Outcome:
    from sb3_contrib import RecurrentPPO

    # glue
    from townlet.sb3 import make_vec

    envs = make_vec(ID, 16)
    # end
    model = RecurrentPPO("MlpLstmPolicy", envs, n_steps=32, batch_size=128, n_epochs=1, device="cpu")
    for turn in repeat_for(seconds):
        model.learn(2048, reset_num_timesteps=turn == 0)
    length = np.mean([episode["l"] for episode in model.ep_info_buffer])
    return Outcome(16, model.num_timesteps, f"last 100 episodes: {length:.0f} steps")


def torchrl(seconds: float) -> Outcome:
    from torchrl.envs import ActionMask, GymWrapper, TransformedEnv

    # glue
    envs = gymnasium.make_vec(ID, num_envs=8, autoreset_mode="same_step")
    env = TransformedEnv(GymWrapper(envs), ActionMask())
    # end
    steps = ends = invalid = 0
    for _ in repeat_for(seconds):
        batch = env.rollout(256, break_when_any_done=False)
        invalid += int((batch["action"].bool() & ~batch["action_mask"].bool()).sum())
        done = batch["next", "done"].squeeze(-1)
        final = batch["next", "observation"][done]
        assert (final.abs().sum(-1) > 0).all()  # final observations, for bootstrapping
        ends += len(final)
        steps += batch.numel()
    assert invalid == 0
    assert ends
    return Outcome(8, steps, f"0 invalid actions, {ends} episodes with final observations")


def torchrl_processes(seconds: float) -> Outcome:
    from torchrl.envs import GymEnv

    # glue
    env = GymEnv(ID, num_envs=8)
    # end
    single = GymEnv(ID).auto_register_info_dict()
    assert set(single.rollout(5)["next"].keys()) >= {"action_mask", "cause", "reward_milestone"}
    steps = 0
    for _ in repeat_for(seconds):
        played = env.rollout(256, break_when_any_done=False)
        assert {"action_mask", "cause", "reward_milestone"} <= set(played["next"].keys())
        assert int((played["next", "cause"] >= 0).sum()) == int(played["next", "done"].sum()) > 0
        steps += played.numel()
    return Outcome(8, steps, "infos are part of the data")


def tianshou(seconds: float) -> Outcome:
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.utils.net.common import Net
    from tianshou.utils.torch_utils import policy_within_training_step

    # glue
    envs = DummyVectorEnv([lambda: gymnasium.make(ID) for _ in range(8)])
    # end
    env = gymnasium.make(ID)
    net = Net(state_shape=env.observation_space.shape, action_shape=6, hidden_sizes=(64,))
    policy = DiscreteQLearningPolicy(model=net, action_space=env.action_space, eps_training=0.5)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3))
    buffer = VectorReplayBuffer(16_384, 8)
    collector = Collector(algorithm, envs, buffer)
    collector.reset()
    updates = steps = 0
    for _ in repeat_for(seconds):
        steps += collector.collect(n_step=1024).n_collected_steps
        with torch.enable_grad(), policy_within_training_step(policy):
            for _ in range(64):
                algorithm.update(buffer=buffer, sample_size=64)
                updates += 1
    assert np.isfinite(buffer.info["reward_milestone"]).all()
    return Outcome(8, steps, f"{updates:,} updates; infos are in the buffer")


def minari(seconds: float) -> Outcome:
    # glue
    from minari import DataCollector

    env = DataCollector(gymnasium.make(ID), record_infos=True)
    # end
    env.reset(seed=0)
    steps = 0
    for _ in repeat_for(seconds):
        steps += 1
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
    return Outcome(1, steps, f"{data.total_episodes} episodes with infos")


def rllib(seconds: float) -> Outcome:
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig

    # glue
    config = PPOConfig().environment(f"townlet:{ID}")
    # end
    config = config.env_runners(num_env_runners=1, num_envs_per_env_runner=4)
    config = config.training(train_batch_size=1024, minibatch_size=256, num_epochs=1)
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, num_cpus=2)
    try:
        algorithm = config.build_algo()
        for _ in repeat_for(seconds):
            result = algorithm.train()
        algorithm.stop()
    finally:
        ray.shutdown()
    length = result["env_runners"]["episode_len_mean"]
    checked = f"{result['training_iteration']} iterations; last 100 episodes: {length:.0f} steps"
    return Outcome(4, int(result["num_env_steps_sampled_lifetime"]), checked)
