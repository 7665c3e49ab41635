"""Environments of other libraries, stepped in the same benchmark for comparison."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from townlet.bench.simulation import Benchmark, available_cores, draw_actions

SCANNED_STEPS = 256  # gymnax is at its best when many steps are one compiled loop
CARTPOLE = "CartPole-v1"


class Skipped(Exception):
    """A library cannot be measured here; the message is the reason."""


def gymnasium_sync(rows: int) -> Benchmark:
    """CartPole in Gymnasium's SyncVectorEnv: a Python loop over rows."""
    return _gymnasium(rows, "sync", "Gymnasium SyncVectorEnv")


def gymnasium_native(rows: int) -> Benchmark:
    """CartPole in Gymnasium's native vectorized form: NumPy over all rows."""
    return _gymnasium(rows, "vector_entry_point", "Gymnasium native vector")


def _gymnasium(rows: int, mode: str, label: str) -> Benchmark:
    import gymnasium

    env = gymnasium.make_vec(CARTPOLE, num_envs=rows, vectorization_mode=mode)
    env.reset(seed=0)
    batches = draw_actions(rows, 2)

    def run_pass() -> int:
        for actions in batches:
            env.step(actions)
        return len(batches)

    return Benchmark(run_pass, subject="peer", world=CARTPOLE, engine=label, rows=rows)


def gymnax(rows: int) -> Benchmark:
    """CartPole in gymnax on JAX: steps and resets of all rows in one compiled loop."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import gymnax
            import jax
    except ImportError as error:
        reason = f"gymnax cannot be imported ({error}); in a separate environment: pip install '.[bench]'"
        raise Skipped(reason) from None

    env, params = gymnax.make(CARTPOLE)
    step_rows = jax.vmap(env.step, in_axes=(0, 0, 0, None))

    def one_step(carry: Any, _: None) -> tuple[Any, Any]:
        key, state, _obs = carry
        key, for_actions, for_steps = jax.random.split(key, 3)
        actions = jax.random.randint(for_actions, (rows,), 0, 2)
        keys = jax.random.split(for_steps, rows)
        obs, state, reward, terminated, _truncated, _info = step_rows(keys, state, actions, params)
        return (key, state, obs), (reward.sum(), terminated.sum())

    loop: Callable[[Any], Any] = jax.jit(lambda carry: jax.lax.scan(one_step, carry, None, SCANNED_STEPS))
    key = jax.random.key(0)
    obs, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, rows), params)
    carry = (key, state, obs)

    def run_pass() -> int:
        nonlocal carry
        carry, _ = loop(carry)
        jax.block_until_ready(carry)
        return SCANNED_STEPS

    return Benchmark(
        run_pass, subject="peer", world=CARTPOLE, engine="gymnax (JAX, scanned)", rows=rows, threads=available_cores()
    )


def all_peers(rows: int) -> Iterator[tuple[Benchmark | None, str]]:
    """Each benchmark, or None and the reason why it is skipped."""
    for make in (gymnasium_sync, gymnasium_native, gymnax):
        # A Python loop takes the same time per row however many there are; more rows would only take longer.
        if make is gymnasium_sync and rows > 1024:
            continue
        try:
            yield make(rows), ""
        except Skipped as reason:
            yield None, str(reason)
