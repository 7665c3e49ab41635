"""From specs to the parts that explore: what agents call."""

from __future__ import annotations

import torch

from townlet.contract.counters import Counters
from townlet.contract.crew import SOLO, Crew
from townlet.contract.layout import Layout
from townlet.explore.bonus import Bonus
from townlet.explore.choose import Boltzmann, Chooser, Epsilon
from townlet.explore.counts import Counts
from townlet.explore.rnd import Rnd
from townlet.explore.spec import AdaptiveWeight, BoltzmannSpec, CountsSpec, EpsilonSpec, FixedWeight, RndSpec
from townlet.explore.weight import Adaptive, Fixed, Weight
from townlet.rng import Streams


def make_chooser(
    spec: EpsilonSpec | BoltzmannSpec,
    rows: int,
    counters: Counters,
    generator: torch.Generator,
    device: str = "cpu",
    crew: Crew = SOLO,
) -> Chooser:
    """The way to choose for N rows. The generator lives on the device and is kept with the chooser's state."""
    if isinstance(spec, EpsilonSpec):
        return Epsilon(spec, rows, counters, generator, device, crew)
    return Boltzmann(spec, rows, counters, generator, device, crew)


def make_bonus(
    spec: RndSpec | CountsSpec | None, layout: Layout, streams: Streams, device: str = "cpu"
) -> Bonus | None:
    """The bonus for observations of this layout; none without a spec."""
    if spec is None:
        return None
    return Rnd(spec, layout, streams, device) if isinstance(spec, RndSpec) else Counts(spec, layout, streams, device)


def make_weight(spec: FixedWeight | AdaptiveWeight, counters: Counters, max_steps: int) -> Weight:
    """What the bonus weighs."""
    return Fixed(spec, counters) if isinstance(spec, FixedWeight) else Adaptive(spec, max_steps)
