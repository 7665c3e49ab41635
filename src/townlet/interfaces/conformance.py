"""Conformance tests of `VecEnv`: run `check(make)` on any implementation.

`make(rows)` builds a new environment. Each requirement is one function and raises `NotConforming` if it is violated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import torch
from torch import Tensor

from townlet.errors import TownletError
from townlet.interfaces.vec_env import Continuous, Discrete, MaskedObs, Step, VecEnv

MakeEnv = Callable[[int], VecEnv]
ROWS, STEPS = 7, 120


class NotConforming(TownletError):
    """A requirement of `VecEnv` that an environment violates."""


def require(fulfilled: object, requirement: str) -> None:
    if not fulfilled:
        raise NotConforming(f"the environment violates '{requirement}'", "see townlet.interfaces.vec_env")


def sample_actions(env: VecEnv, mask: Tensor, generator: torch.Generator) -> Tensor:
    """A random valid action for every row."""
    space = env.actions
    if isinstance(space, Discrete):
        return torch.multinomial(mask.float().cpu(), 1, generator=generator).squeeze(1).to(env.device)
    if isinstance(space, Continuous):
        low, high = (torch.tensor(bound) for bound in (space.low, space.high))
        return (low + (high - low) * torch.rand(env.rows, space.n, generator=generator)).to(env.device)
    return torch.randint(2, (env.rows, space.n), generator=generator).to(env.device)


def random_steps(env: VecEnv, current: MaskedObs | Step, steps: int, seed: int = 0) -> Iterator[Step]:
    """Take random valid actions from the current observation on; yields a copy of each step."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        current = env.step(sample_actions(env, current.mask, generator))
        yield copy_step(current)


def copy_step(step: Step) -> Step:
    """A step whose tensors the environment cannot overwrite."""
    return step._replace(**{n: t.clone() for n, t in zip(Step._fields, step, strict=True) if t is not None})


def equal_steps(a: Step, b: Step, rows: slice = slice(None)) -> bool:
    """Whether two steps are bitwise equal in the given rows."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None or y is not None]
    return all(x is not None and y is not None and torch.equal(x[rows], y[rows]) for x, y in pairs)


def shapes_and_types(make: MakeEnv) -> None:
    """Shapes, dtypes and devices are as documented, from the first observation on."""
    env = make(ROWS)
    first = env.reset(1)
    d, k, r = env.layout.size, env.actions.choices, len(env.components)
    require(first.obs.shape == (ROWS, d) and first.obs.dtype == torch.float32, f"obs is float32 [{ROWS}, {d}]")
    require(first.mask.shape == (ROWS, k) and first.mask.dtype == torch.bool, f"mask is bool [{ROWS}, {k}]")
    for step in random_steps(env, first, 3):
        require(step.obs.shape == (ROWS, d), "obs keeps its shape")
        require(step.reward.shape == (ROWS,) and step.reward.dtype == torch.float32, "reward is float32 [N]")
        require(step.components.shape == (ROWS, r), "components are [N, R]")
        for name in ("terminated", "truncated"):
            flags = getattr(step, name)
            require(flags.shape == (ROWS,) and flags.dtype == torch.bool, f"{name} is bool [N]")
        device_type = torch.device(env.device).type
        require(all(t is None or t.device.type == device_type for t in step), "all tensors are on the device")
    env.close()


def values_in_range(make: MakeEnv) -> None:
    """Values are in range, components sum to the reward, some action is valid, and autoreset steps are marked."""
    env = make(ROWS)
    low = torch.cat([torch.full((b.size,), float(b.low)) for b in env.layout])
    high = torch.cat([torch.full((b.size,), float(b.high)) for b in env.layout])
    ended_before = torch.zeros(ROWS, dtype=torch.bool, device=env.device)
    for step in random_steps(env, env.reset(2), STEPS):
        obs = step.obs.cpu()
        require(torch.isfinite(obs).all() and torch.isfinite(step.reward).all(), "every value is finite")
        require(((obs >= low - 1e-6) & (obs <= high + 1e-6)).all(), "obs lies in the ranges of its blocks")
        require(step.mask.any(1).all() or not env.actions.choices, "every row has a valid action")
        require(torch.allclose(step.components.sum(1), step.reward, atol=1e-4), "components sum to the reward")
        ended = step.terminated | step.truncated
        autoreset = step.autoreset_step
        require((autoreset is not None) == env.autoreset_steps, "`autoreset_steps` states whether resets take a step")
        require(not (step.terminated & step.truncated).any(), "no episode is both terminated and truncated")
        if autoreset is not None:
            require(torch.equal(autoreset, ended_before), "the autoreset step is the step after the end of an episode")
            require(not step.reward[autoreset].any(), "an autoreset step has no reward")
            require(not ended[autoreset].any(), "an autoreset step does not end an episode")
        ended_before = ended
    env.close()


def same_seed_same_episodes(make: MakeEnv) -> None:
    """The same seed gives bit-identical steps in two environments, and again after a reset."""
    one, two = make(ROWS), make(ROWS)
    first, second, third = (list(random_steps(env, env.reset(3), STEPS)) for env in (one, two, one))
    for a, b, c in zip(first, second, third, strict=True):
        require(equal_steps(a, b), "the same seed gives the same steps")
        require(equal_steps(a, c), "reset(seed) repeats the same episodes")
    one.close()
    two.close()


def final_observations(make: MakeEnv) -> None:
    """final_obs() returns the rows that ended, and only those, with their final observation."""
    env, count = make(ROWS), 0
    for step in random_steps(env, env.reset(4), 40 * STEPS):
        last = env.final_obs()
        ended = torch.nonzero(step.terminated | step.truncated).squeeze(1)
        require(torch.equal(last.rows.cpu(), ended.cpu()), "final_obs() returns the rows that ended in the last step")
        require(last.obs.shape == (len(ended), env.layout.size), "final_obs().obs is [k, D]")
        require(last.mask.shape == (len(ended), env.actions.choices), "final_obs().mask is [k, K]")
        same = step.autoreset_step is None or torch.equal(last.obs, step.obs[last.rows])
        require(same, "with next-step autoreset the step returns the final observation")
        count += len(ended)
        if count >= ROWS:
            break
    require(count, f"an episode ends within {40 * STEPS} steps")
    env.close()


def restored_state_continues(make: MakeEnv) -> None:
    """If an environment is `exact`, a state restored in a second instance continues bit for bit."""
    one, two = make(ROWS), make(ROWS)
    if not one.exact:
        shape = two.restore(one.state()).obs.shape
        require(shape == (ROWS, two.layout.size), "restore() starts new episodes if the environment is not exact")
        one.close()
        two.close()
        return
    *_, last = random_steps(one, one.reset(5), STEPS // 2)
    state = one.state()
    two.reset(99)
    restored = two.restore(state)
    require(torch.equal(restored.obs, last.obs), "restore() returns the current observation")
    require(torch.equal(restored.mask, last.mask), "restore() returns the current mask")
    originals, repeats = list(random_steps(one, last, STEPS, seed=6)), list(random_steps(two, restored, STEPS, seed=6))
    for a, b in zip(originals, repeats, strict=True):
        require(equal_steps(a, b), "steps after restore() are bit-identical")
    one.close()
    two.close()


def rows_are_independent(make: MakeEnv) -> None:
    """Actions in one row never change another."""
    one, two = make(ROWS), make(ROWS)
    one.reset(7)
    two.reset(7)
    generator = torch.Generator().manual_seed(8)
    all_valid = torch.ones(ROWS, one.actions.choices, dtype=torch.bool)
    for _ in range(STEPS):
        actions = sample_actions(one, all_valid, generator)
        other = torch.cat([actions[:3], sample_actions(one, all_valid, generator)[3:]])
        a, b = copy_step(one.step(actions)), copy_step(two.step(other))
        require(equal_steps(a, b, slice(3)), "a row does not depend on other rows")
    one.close()
    two.close()


CHECKS = (
    shapes_and_types, values_in_range, same_seed_same_episodes, final_observations, restored_state_continues,
    rows_are_independent,
)  # fmt: skip


def check(make: MakeEnv, *, exclude: Collection[Callable[[MakeEnv], None]] = ()) -> None:
    """Run all checks, except those that the environment is known to violate."""
    for requirement in CHECKS:
        if requirement not in exclude:
            requirement(make)
