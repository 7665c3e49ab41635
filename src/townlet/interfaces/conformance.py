"""The promises of `VecEnv` as code: run `check(make)` on any implementation.

`make(rows)` builds a fresh environment. Each promise is one function; a broken one raises `Broken`, which
names it and says what was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import torch
from torch import Tensor

from townlet.errors import TownletError
from townlet.interfaces.vec_env import Continuous, Discrete, MaskedObs, Step, VecEnv

Make = Callable[[int], VecEnv]
ROWS, STEPS = 7, 120


class Broken(TownletError):
    """A promise of the contract that an environment does not keep."""


def require(kept: object, promise: str) -> None:
    """Raise unless the promise is kept."""
    if not kept:
        raise Broken(f"not a conforming VecEnv: {promise}", "see townlet.interfaces.vec_env")


def same(a: Tensor, b: Tensor) -> bool:
    """Equal to the bit."""
    return a.shape == b.shape and bool(torch.equal(a, b))


def draw(env: VecEnv, mask: Tensor, chance: torch.Generator) -> Tensor:
    """A random valid action for every row."""
    kind = env.actions
    if isinstance(kind, Discrete):
        return torch.multinomial(mask.float().cpu(), 1, generator=chance).squeeze(1).to(env.device)
    if isinstance(kind, Continuous):
        low, high = (torch.tensor(bound) for bound in (kind.low, kind.high))
        return (low + (high - low) * torch.rand(env.rows, kind.n, generator=chance)).to(env.device)
    return torch.randint(2, (env.rows, kind.n), generator=chance).to(env.device)


def play(env: VecEnv, seen: MaskedObs | Step, steps: int, seed: int = 0) -> Iterator[tuple[Tensor, Step]]:
    """Random valid actions; yields each action with copies of what it brought."""
    chance = torch.Generator().manual_seed(seed)
    mask = seen.mask
    for _ in range(steps):
        actions = draw(env, mask, chance)
        step = env.step(actions)
        mask = step.mask
        yield actions, copied(step)


def copied(step: Step) -> Step:
    """The same, whatever the environment does with its tensors."""
    return step._replace(**{n: t.clone() for n, t in zip(Step._fields, step, strict=True) if t is not None})


def alike(a: Step, b: Step, rows: slice = slice(None)) -> bool:
    """Whether some rows of two steps are equal to the bit."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None or y is not None]
    return all(x is not None and y is not None and same(x[rows], y[rows]) for x, y in pairs)


def shapes_and_types(make: Make) -> None:
    """Shapes, types and device are as promised, from the first observation on."""
    env = make(ROWS)
    seen = env.reset(1)
    d, k, r = env.layout.size, env.actions.choices, len(env.components)
    require(seen.obs.shape == (ROWS, d) and seen.obs.dtype == torch.float32, f"obs is float32 [{ROWS}, {d}]")
    require(seen.mask.shape == (ROWS, k) and seen.mask.dtype == torch.bool, f"mask is bool [{ROWS}, {k}]")
    for _, step in play(env, seen, 3):
        require(step.obs.shape == (ROWS, d), "obs keeps its shape")
        require(step.reward.shape == (ROWS,) and step.reward.dtype == torch.float32, "reward is float32 [N]")
        require(step.components.shape == (ROWS, r), "components are [N, R]")
        for name in ("terminated", "truncated"):
            flags = getattr(step, name)
            require(flags.shape == (ROWS,) and flags.dtype == torch.bool, f"{name} is bool [N]")
        here = torch.device(env.device).type
        require(all(t is None or t.device.type == here for t in step), "all tensors are on the device")
    env.close()


def values_in_range(make: Make) -> None:
    """Observations stay in the layout's ranges, rewards are the sum of their components, some action is valid."""
    env = make(ROWS)
    low = torch.cat([torch.full((b.size,), float(b.low)) for b in env.layout])
    high = torch.cat([torch.full((b.size,), float(b.high)) for b in env.layout])
    before = torch.zeros(ROWS, dtype=torch.bool, device=env.device)
    for _, step in play(env, env.reset(2), STEPS):
        obs = step.obs.cpu()
        require(torch.isfinite(obs).all() and torch.isfinite(step.reward).all(), "every value is finite")
        require(((obs >= low - 1e-6) & (obs <= high + 1e-6)).all(), "obs lies in the ranges of its blocks")
        require(step.mask.any(1).all() or not env.actions.choices, "every row has a valid action")
        require(torch.allclose(step.components.sum(1), step.reward, atol=1e-4), "components sum to the reward")
        over = step.terminated | step.truncated
        require(
            (step.autoreset_step is not None) == env.autoreset_steps, "`autoreset_steps` says whether steps can be void"
        )
        require(not (step.terminated & step.truncated).any(), "no episode is both terminated and truncated")
        if step.autoreset_step is not None:
            require(same(step.autoreset_step, before), "a row is void in the step after its end, and in no other")
            require(
                not step.reward[step.autoreset_step].any() and not over[step.autoreset_step].any(),
                "nothing happens to void rows",
            )
        before = over
    env.close()


def same_seed_same_life(make: Make) -> None:
    """The same seed gives the same bits in two environments, and again after a reset; another seed does not."""
    one, two = make(ROWS), make(ROWS)
    first = [step for _, step in play(one, one.reset(3), STEPS)]
    second = [step for _, step in play(two, two.reset(3), STEPS)]
    third = [step for _, step in play(one, one.reset(3), STEPS)]
    for a, b, c in zip(first, second, third, strict=True):
        require(alike(a, b), "the same seed gives the same steps")
        require(alike(a, c), "reset(seed) begins the same again")
    one.close()
    two.close()


def ended_rows(make: Make) -> None:
    """Rows that end are reported with what they saw last; the others are not."""
    env = make(ROWS)
    seen = env.reset(4)
    ends = 0
    for _, step in play(env, seen, 40 * STEPS):
        last = env.final_obs()
        over = torch.nonzero(step.terminated | step.truncated).squeeze(1)
        require(same(last.rows.cpu(), over.cpu()), "ended() names the rows that ended in the last step")
        require(last.obs.shape == (len(over), env.layout.size), "ended().obs is [k, D]")
        require(last.mask.shape == (len(over), env.actions.choices), "ended().mask is [k, K]")
        if step.autoreset_step is not None:
            require(same(last.obs, step.obs[last.rows]), "where rows need a step to begin anew they show their end")
        ends += len(over)
        if ends >= ROWS:
            break
    require(ends, f"an episode ends within {40 * STEPS} steps")
    env.close()


def goes_on_where_it_was(make: Make) -> None:
    """A restored state continues with the same bits, in another environment, where that is promised."""
    one, two = make(ROWS), make(ROWS)
    if not one.exact:
        seen = two.restore(one.state())
        require(seen.obs.shape == (ROWS, two.layout.size), "restore() begins episodes where it cannot go on with them")
        return
    *_, (_, last) = play(one, one.reset(5), STEPS // 2)
    state = one.state()
    two.reset(99)
    seen = two.restore(state)
    require(same(seen.obs, last.obs) and same(seen.mask, last.mask), "restore() shows what state() saw")
    ahead = [step for _, step in play(one, last, STEPS, seed=6)]
    again = [step for _, step in play(two, seen, STEPS, seed=6)]
    for a, b in zip(ahead, again, strict=True):
        require(alike(a, b), "restore() continues with the same bits")
    one.close()
    two.close()


def rows_do_not_meet(make: Make) -> None:
    """What one row does never changes another."""
    one, two = make(ROWS), make(ROWS)
    one.reset(7)
    two.reset(7)
    chance = torch.Generator().manual_seed(8)
    every = torch.ones(ROWS, one.actions.choices, dtype=torch.bool)
    for _ in range(STEPS):
        actions = draw(one, every, chance)
        other = torch.cat([actions[:3], draw(one, every, chance)[3:]])
        a, b = copied(one.step(actions)), copied(two.step(other))
        require(alike(a, b, slice(3)), "a row sees nothing of other rows")
    one.close()
    two.close()


CHECKS = (shapes_and_types, values_in_range, same_seed_same_life, ended_rows, goes_on_where_it_was, rows_do_not_meet)


def check(make: Make, *, but: Collection[Callable[[Make], None]] = ()) -> None:
    """Every promise in turn, `but` those that an environment of others is known not to keep."""
    for promise in CHECKS:
        if promise not in but:
            promise(make)
