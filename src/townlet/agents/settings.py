"""Settings that all agents have: the fields that other packages read, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple, Self

from pydantic import Field

from townlet.config.models import StrictModel
from townlet.nets.spec import MlpSpec, NetworkSpec

# Minibatches up to this number of steps × layer width are trained with one thread: torch's threads would spend more
# time synchronizing than computing. One thread is as fast on an idle two-core machine, and up to 100 times as fast on a
# busy one.
SMALL_MINIBATCH: Final = 2**15
# Settings that several agents have, each with its own default.
MaxGradNorm = Annotated[
    float | None,
    Field(gt=0, description="Maximum gradient norm. Lower is more stable but slower; null disables clipping."),
]
RewardScale = Annotated[
    float,
    Field(gt=0, description="Factor that multiplies rewards before learning. Lower shrinks values and gradients."),
]
Carry = Annotated[
    bool, Field(description="Carry the hidden state from step to step; if false, it is always zero: no memory.")
]


class SettingProblem(NamedTuple):
    """A setting that does not fit the others: its key, what is wrong, and what to do."""

    key: str
    what: str
    fix: str


class AdvantageEstimate(NamedTuple):
    """How the live page estimates advantages: GAE(λ) over the agent's values; `lam` is λ, or None without values."""

    gamma: float
    lam: float | None
    scale: float  # factor that multiplies rewards before learning; values have this scale
    text: str  # explanation for the user


class AgentSettings(StrictModel):
    """Settings of an agent. A subclass narrows `name` to a literal, by which recipes choose it."""

    name: str
    file: str | None = Field(
        None,
        exclude_if=lambda file: file is None,
        description="The .py file that registers a custom agent, relative to the recipe; runs only with --allow-code.",
    )
    gamma: float = Field(
        0.99, ge=0, le=1, description="Discount factor. Higher looks further ahead but learns more slowly."
    )

    def resolved(self, rows: int) -> Self:
        """The same settings with numbers in place of fractions, for a run of this many rows."""
        return self

    def threads(self, network: NetworkSpec) -> int | None:
        """Best number of torch threads for this agent, whose fractions are resolved; None: one per core."""
        size = self.minibatch_steps
        if size is None or not isinstance(network, MlpSpec):
            return None
        return 1 if size * max(network.widths, default=1) <= SMALL_MINIBATCH else None

    @property
    def minibatch_steps(self) -> int | None:
        """Steps in a minibatch; None if that is not known, or if it consists of sequences."""
        return None

    def problems(self, rows: int | None) -> Iterator[SettingProblem]:
        """Yield settings that contradict each other. `rows` is None where the number of rows is not known."""
        yield from ()

    def hints(self, network: NetworkSpec) -> Iterator[str]:
        """Yield notes on settings that are valid but rarely wanted."""
        yield from ()

    def displayed_advantage(self) -> AdvantageEstimate:
        """How the live page estimates advantages; by default as the one-step temporal difference."""
        return self._estimate(0.0, "Temporal difference: reward + γ · next value − value.")

    def _estimate(self, lam: float, text: str) -> AdvantageEstimate:
        """GAE(λ) with this agent's discount and reward scale, both of which the text states."""
        gamma, scale = float(self.gamma), float(getattr(self, "reward_scale", 1.0))
        text += f" Uses γ = {gamma:g} from the recipe"
        text += f" and rewards multiplied by {scale:g}, as in training." if scale != 1 else "."
        return AdvantageEstimate(gamma, float(lam), scale, text)
