"""The promises of `VecEnv` as code: run `check(make)` on any implementation.

`make(rows)` builds a fresh environment. Each promise is one function; a broken one raises `Broken`, which
names it and says what was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from townlet.contract.vec_env import Seen, Step, VecEnv
from townlet.errors import TownletError

Make = Callable[[int], VecEnv]
ROWS, STEPS = 7, 120


class Broken(TownletError):
    """A promise of the contract that an environment does not keep."""


def require(kept: object, promise: str) -> None:
    """Raise unless the promise is kept."""
    if not kept:
        raise Broken(f"not a conforming VecEnv: {promise}", "see townlet.contract.vec_env")


def same(a: Tensor, b: Tensor) -> bool:
    """Equal to the bit."""
    return a.shape == b.shape and bool(torch.equal(a, b))


def play(env: VecEnv, seen: Seen | Step, steps: int, seed: int = 0) -> Iterator[tuple[Tensor, Step]]:
    """Random valid actions; yields each action with copies of what it brought."""
    chance = torch.Generator().manual_seed(seed)
    mask = seen.mask
    for _ in range(steps):
        actions = torch.multinomial(mask.float().cpu(), 1, generator=chance).squeeze(1).to(env.device)
        step = env.step(actions)
        mask = step.mask
        yield actions, Step(*(t.clone() for t in step))


def shapes_and_types(make: Make) -> None:
    """Shapes, types and device are as promised, from the first observation on."""
    env = make(ROWS)
    seen = env.reset(1)
    d, k, r = env.layout.size, env.actions.n, len(env.components)
    require(seen.obs.shape == (ROWS, d) and seen.obs.dtype == torch.float32, f"obs is float32 [{ROWS}, {d}]")
    require(seen.mask.shape == (ROWS, k) and seen.mask.dtype == torch.bool, f"mask is bool [{ROWS}, {k}]")
    for _, step in play(env, seen, 3):
        require(step.obs.shape == (ROWS, d), "obs keeps its shape")
        require(step.reward.shape == (ROWS,) and step.reward.dtype == torch.float32, "reward is float32 [N]")
        require(step.components.shape == (ROWS, r), "components are [N, R]")
        for name in ("terminated", "truncated"):
            flags = getattr(step, name)
            require(flags.shape == (ROWS,) and flags.dtype == torch.bool, f"{name} is bool [N]")
        require(all(t.device.type == torch.device(env.device).type for t in step), "all tensors are on the device")
    env.close()


def values_in_range(make: Make) -> None:
    """Observations stay in the layout's ranges, rewards are the sum of their components, some action is valid."""
    env = make(ROWS)
    low = torch.cat([torch.full((b.size,), b.low) for b in env.layout])
    high = torch.cat([torch.full((b.size,), b.high) for b in env.layout])
    for _, step in play(env, env.reset(2), STEPS):
        obs = step.obs.cpu()
        require(torch.isfinite(obs).all() and torch.isfinite(step.reward).all(), "every value is finite")
        require(((obs >= low - 1e-6) & (obs <= high + 1e-6)).all(), "obs lies in the ranges of its blocks")
        require(step.mask.any(1).all(), "every row has a valid action")
        require(torch.allclose(step.components.sum(1), step.reward, atol=1e-4), "components sum to the reward")
        require(not (step.terminated & step.truncated).any(), "no episode is both terminated and truncated")
    env.close()


def same_seed_same_life(make: Make) -> None:
    """The same seed gives the same bits in two environments, and again after a reset; another seed does not."""
    one, two = make(ROWS), make(ROWS)
    first = [step for _, step in play(one, one.reset(3), STEPS)]
    second = [step for _, step in play(two, two.reset(3), STEPS)]
    third = [step for _, step in play(one, one.reset(3), STEPS)]
    for a, b, c in zip(first, second, third, strict=True):
        require(all(same(x, y) for x, y in zip(a, b, strict=True)), "the same seed gives the same steps")
        require(all(same(x, y) for x, y in zip(a, c, strict=True)), "reset(seed) begins the same again")
    one.close()
    two.close()


def ended_rows(make: Make) -> None:
    """Rows that end are reported with what they saw last; the others are not."""
    env = make(ROWS)
    seen = env.reset(4)
    ends = 0
    for _, step in play(env, seen, 40 * STEPS):
        last = env.ended()
        over = torch.nonzero(step.terminated | step.truncated).squeeze(1)
        require(same(last.rows.cpu(), over.cpu()), "ended() names the rows that ended in the last step")
        require(last.obs.shape == (len(over), env.layout.size), "ended().obs is [k, D]")
        require(last.mask.shape == (len(over), env.actions.n), "ended().mask is [k, K]")
        ends += len(over)
        if ends >= ROWS:
            break
    require(ends, f"an episode ends within {40 * STEPS} steps")
    env.close()


def goes_on_where_it_was(make: Make) -> None:
    """A restored state continues with the same bits, in another environment."""
    one, two = make(ROWS), make(ROWS)
    *_, (_, last) = play(one, one.reset(5), STEPS // 2)
    state = one.state()
    two.reset(99)
    seen = two.restore(state)
    require(same(seen.obs, last.obs) and same(seen.mask, last.mask), "restore() shows what state() saw")
    ahead = [step for _, step in play(one, last, STEPS, seed=6)]
    again = [step for _, step in play(two, seen, STEPS, seed=6)]
    for a, b in zip(ahead, again, strict=True):
        require(all(same(x, y) for x, y in zip(a, b, strict=True)), "restore() continues with the same bits")
    one.close()
    two.close()


def rows_do_not_meet(make: Make) -> None:
    """What one row does never changes another."""
    one, two = make(ROWS), make(ROWS)
    one.reset(7)
    two.reset(7)
    chance = torch.Generator().manual_seed(8)
    for _ in range(STEPS):
        actions = torch.randint(one.actions.n, (ROWS,), generator=chance).to(one.device)
        other = torch.cat([actions[:3], torch.randint(one.actions.n, (ROWS - 3,), generator=chance).to(one.device)])
        a, b = one.step(actions), two.step(other)
        require(all(same(x[:3], y[:3]) for x, y in zip(a, b, strict=True)), "a row sees nothing of other rows")
    one.close()
    two.close()


CHECKS = (shapes_and_types, values_in_range, same_seed_same_life, ended_rows, goes_on_where_it_was, rows_do_not_meet)


def check(make: Make) -> None:
    """Every promise in turn."""
    for promise in CHECKS:
        promise(make)
