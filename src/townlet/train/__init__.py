"""From a recipe to a trained run: recipes, building, the loop, evaluation, guards and where results are sent."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Train(ModuleType):
    """This room stands where `townlet.train` looks for the function, as soon as it is imported: calling it trains."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        from townlet.train.api import train

        return train(*arguments, **settings)


sys.modules[__name__].__class__ = _Train
