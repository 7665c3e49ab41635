"""Collection of a rollout, for all rows at once: act, step, observe, and report to a listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch

from townlet.agents.agent import no_interrupt
from townlet.interfaces.vec_env import ConfigurableVecEnv, MaskedObs, Step
from townlet.train.episodes import RolloutListener
from townlet.train.monitors import check_reward
from townlet.train.training import Training


def collect(
    t: Training, steps: int, listener: RolloutListener, check_interrupt: Callable[[], None] = no_interrupt
) -> None:
    """Take `steps` steps in every row; `check_interrupt` is called before each and may raise.

    If `t.graphed` is set, `steps` and `check_interrupt` are ignored: it always takes `update_interval` steps.
    """
    if t.graphed is not None:
        t.graphed.collect(t.obs, listener)
        return
    needs_entropy = t.curriculum is not None and t.curriculum.needs_entropy
    for _ in range(steps):
        check_interrupt()
        actions = t.agent.act(t.obs)
        step = t.env.step(actions)
        t.counters.env_steps += t.rows
        if t.parallel_training is None:
            check_reward(step.reward, f"at env_steps {t.counters.env_steps}")
        else:
            t.parallel_training.on_step(step.reward)
        ended = t.env.final_obs()
        t.agent.observe(_as_learned(step, t.recipe.bootstrap_at), ended)
        listener.on_step(actions)
        entropy = t.agent.entropy() if needs_entropy else None
        episodes = t.tracker.step(step, ended, t.agent.intrinsic, entropy)
        t.obs = MaskedObs(step.obs, step.mask)
        if len(episodes):
            if t.parallel_training is None:
                t.count(episodes)
            else:
                t.parallel_training.add_episodes(episodes, ended)
            t.agent.on_episodes_end(episodes)
            listener.on_episodes(episodes, ended)
            if t.curriculum and (changes := t.curriculum.update(episodes)):
                rows = torch.tensor([change.row for change in changes])
                t.obs = cast(ConfigurableVecEnv, t.env).set(rows, **t.curriculum.settings(rows))
                listener.on_stage_changes(changes)
    if t.parallel_training is not None:
        t.parallel_training.exchange_episodes(listener)


def _as_learned(step: Step, bootstrap_at: str) -> Step:
    """The step with ends of episodes labeled for learning: it bootstraps from the final state of truncated ones."""
    if bootstrap_at == "truncation":
        return step
    ends, never = step.terminated | step.truncated, torch.zeros_like(step.truncated)
    terminated, truncated = (ends, never) if bootstrap_at == "none" else (never, ends)
    return step._replace(terminated=terminated, truncated=truncated)
