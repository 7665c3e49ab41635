"""The only three counters of a run, and how far it is along its budget."""

from __future__ import annotations

from dataclasses import dataclass

from townlet.interfaces.state import State


@dataclass
class Counters:
    """Shared by all parts of a run. The loop counts env_steps (rows × steps) and episodes, the agent its updates."""

    env_steps: int = 0
    updates: int = 0
    episodes: int = 0
    budget: int = 0  # env_steps of the whole run; 0 when only time ends it

    @property
    def progress(self) -> float:
        """The share of the budget that is spent, in [0, 1]; 0 without a budget in steps."""
        return min(1.0, self.env_steps / self.budget) if self.budget else 0.0

    def state(self) -> State:
        """The counters. The budget is not part of them: a resumed run may be given more."""
        return {"env_steps": self.env_steps, "updates": self.updates, "episodes": self.episodes}

    def restore(self, state: State) -> None:
        """Take over the counters."""
        self.env_steps, self.updates, self.episodes = (int(state[k]) for k in ("env_steps", "updates", "episodes"))


def format_count(count: float) -> str:
    """A large number in few letters: 20000000 as 20M."""
    count = float(f"{count:.3g}") if count >= 1e3 else count  # first, so that 999999 becomes 1M and not 1000k
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return f"{count:g}"
