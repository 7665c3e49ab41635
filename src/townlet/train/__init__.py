"""From an experiment to a trained run: session, loop, rollouts, checkpoints, metrics and monitors.

The package can be called: `townlet.train(env, algorithm, steps=…)` trains an agent.
"""

from __future__ import annotations

import sys
from types import ModuleType

import townlet

# Importing this package replaces the function of the same name in `townlet`. It stays what is called and documented.
train = vars(townlet)["train"]
__all__ = ["train"]


class _Train(ModuleType):
    """Makes the package callable, so that `townlet.train(…)` works although `townlet.train` is also a package."""

    __call__ = staticmethod(train)


sys.modules[__name__].__class__ = _Train
