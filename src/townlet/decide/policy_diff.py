"""What two versions would do in observations that nobody learned from: a few numbers of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Chances = NDArray[np.floating]  # [N, K], each line sums to 1
Numbers = NDArray[np.floating]  # [N]
Both = tuple[Numbers, Numbers]  # of the candidate, and of the version before it


class PolicyDiff(NamedTuple):
    """Of N observations. `hoped` and `said` are None where there is no model of rewards."""

    chosen: Both  # the probability of what was decided
    entropy: Both
    passes: Both  # the probability that the gate approves
    hoped: Both | None  # the reward that is predicted of what a version would do
    said: Numbers | None  # and of what was decided
    change: Numbers  # total variation between both
    choices: NDArray[np.integer]  # how many actions there are to choose from
    finite: tuple[bool, bool]

    def __len__(self) -> int:  # a NamedTuple would count its columns
        return len(self.change)


def compare_policies(
    candidate: Chances, before: Chances, action: NDArray[np.integer], approved: NDArray[np.bool_],
    *, model: NDArray[np.floating] | None = None, allowed: NDArray[np.bool_] | None = None,
    entropies: Both | None = None,
) -> PolicyDiff:  # fmt: skip
    """From probabilities of both versions, the gate's approval and a model of rewards, all [N, K].

    `action` [N] is what was decided, `allowed` [N, K] what a policy can choose at all, all by default; `entropies` are
    those of both versions, where they are at hand.
    """
    versions, lines = (candidate, before), np.arange(len(action))
    with np.errstate(all="ignore"):  # of a broken version
        return PolicyDiff(
            (candidate[lines, action], before[lines, action]),
            entropies or (_entropy(candidate), _entropy(before)),
            _of_both(versions, approved),
            None if model is None else _of_both(versions, model),
            None if model is None else model[lines, action],
            np.abs(candidate - before).sum(1) / 2,
            np.full(len(action), candidate.shape[1]) if allowed is None else allowed.sum(1),
            (bool(np.isfinite(candidate).all()), bool(np.isfinite(before).all())),
        )


def concatenate(parts: Sequence[PolicyDiff]) -> PolicyDiff:
    """All of them, one behind the other; there must be at least one."""
    chosen = _together([part.chosen for part in parts])
    entropy = _together([part.entropy for part in parts])
    passes = _together([part.passes for part in parts])
    hoped = [part.hoped for part in parts if part.hoped is not None]
    said = [part.said for part in parts if part.said is not None]
    return PolicyDiff(
        chosen, entropy, passes, _together(hoped) if hoped else None, np.concatenate(said) if said else None,
        np.concatenate([part.change for part in parts]), np.concatenate([part.choices for part in parts]),
        (all(part.finite[0] for part in parts), all(part.finite[1] for part in parts)),
    )  # fmt: skip


def _together(parts: Sequence[Both]) -> Both:
    return np.concatenate([new for new, _ in parts]), np.concatenate([old for _, old in parts])


def _of_both(versions: Sequence[NDArray[Any]], worth: NDArray[Any]) -> Both:
    """What is expected of both, by what every action is worth [N, K]."""
    new, old = (np.asarray(np.einsum("nk,nk->n", chances, worth)) for chances in versions)
    return new, old


def _entropy(chances: Chances) -> Numbers:
    logs = np.log(chances, out=np.zeros_like(chances), where=chances > 0)
    return np.asarray(-(chances * logs).sum(1))
