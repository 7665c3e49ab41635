"""From an experiment to a trained run: session, loop, rollouts, checkpoints, metrics and monitors."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Train(ModuleType):
    """Makes the package callable, so that `townlet.train(…)` works although `townlet.train` is also a package."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        from townlet.train.api import train

        return train(*arguments, **settings)


sys.modules[__name__].__class__ = _Train
