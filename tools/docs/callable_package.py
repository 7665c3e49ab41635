"""Extension of Griffe: `townlet.train` is a function and a package; its documentation is that of the function."""

from __future__ import annotations

from typing import Any

import griffe


class CallablePackage(griffe.Extension):
    """Makes the function available as `townlet.train.train`: by default the package replaces it."""

    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        """Keep the function, which is read before the package. Its overloads come first."""
        if func.path == "townlet.train":
            self._function = func

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Put the function into the package."""
        pkg["train"].set_member("train", self._function)
