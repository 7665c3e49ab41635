"""What agents share that learn from the last steps of all rows, in a few passes over minibatches of them."""

from __future__ import annotations

import math
from typing import Annotated, Final

from pydantic import Field

from townlet.config.model import Model

TINY: Final = 1e-8


class BatchSettings(Model):
    """How many steps an update has, and how it goes through them."""

    n_steps: int = Field(128, ge=1, description="Steps of every row between updates. Raised, rarer and steadier ones.")
    epochs: int = Field(4, ge=1, description="Passes over these steps. Raised, more is learned from each, less safely.")
    batch_size: Annotated[int, Field(ge=2)] | Annotated[float, Field(gt=0, le=1)] = Field(
        0.25,
        description="Steps in a gradient step: a whole number, or up to 1 the share of all steps (1 is all). "
        "Raised, fewer and steadier gradient steps. A recurrent policy takes whole rows, as near to it as they come.",
    )

    def batch_steps(self, steps: int) -> int:
        """The size of a minibatch where an update has so many steps.

        Rounded down; a product like .29 × 100 that falls short of a whole number only by its last bits is that one.
        """
        share = self.batch_size
        return share if isinstance(share, int) else max(1, math.floor(share * steps * (1 + TINY)))
