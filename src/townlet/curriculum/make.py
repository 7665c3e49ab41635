"""From a spec to a curriculum for one world."""

from __future__ import annotations

from collections.abc import Sequence

from townlet.curriculum.adversarial import Adversarial
from townlet.curriculum.curriculum import Curriculum
from townlet.curriculum.fixed import Fixed
from townlet.curriculum.spec import AdversarialSpec, FixedSpec


def make_curriculum(
    spec: FixedSpec | AdversarialSpec, rows: int, max_steps: int, meters: Sequence[str], rewards: Sequence[str]
) -> Curriculum:
    """The curriculum for N rows of a world with these meters and rewards, by name and in its order."""
    if isinstance(spec, FixedSpec):
        return Fixed(spec, rows, meters, rewards)
    return Adversarial(spec, rows, max_steps, meters, rewards)
