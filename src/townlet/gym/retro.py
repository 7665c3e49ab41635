"""Games of old consoles through stable-retro, as Gymnasium ids: `retro/Airstriker-Genesis-v0`.

Importing this registers every game that stable-retro knows. Most of them need a ROM, which is the user's to bring.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import gymnasium as gym
import stable_retro
from gymnasium import spaces

from townlet.errors import TownletError

PREFIX: Final = "retro/"
IMPORT: Final = "if you own the game, import it: python -m stable_retro.import FOLDER"


class Retro(gym.Wrapper[Any, Any, Any, Any]):
    """A game as the others are: it renders only when asked to, and says what its actions are called."""

    def __init__(
        self,
        game: str,
        render_mode: str | None = None,
        actions: Literal["all", "filtered", "discrete", "multi_discrete"] = "filtered",
        **kwargs: Any,
    ) -> None:
        kinds = {kind.name.lower(): kind for kind in stable_retro.Actions}
        if actions not in kinds:
            raise ValueError(f"there are no actions '{actions}', but {', '.join(kinds)}")
        if isinstance(sight := kwargs.get("obs_type"), str):
            kwargs["obs_type"] = {kind.name.lower(): kind for kind in stable_retro.Observations}[sight]
        try:
            made = stable_retro.make(game, use_restricted_actions=kinds[actions], render_mode=render_mode, **kwargs)
        except FileNotFoundError:
            raise TownletError(f"the ROM of {game} is not there", IMPORT) from None
        super().__init__(made)

    def get_action_meanings(self) -> list[str]:
        """The buttons of each action of a list."""
        space = self.env.action_space
        count = int(space.n) if isinstance(space, spaces.Discrete) else 0
        game: Any = self.env
        return [" + ".join(game.get_action_meaning(action)) or "nothing" for action in range(count)]


def _register() -> None:
    for game in stable_retro.data.list_games():
        if (id := PREFIX + game) not in gym.registry:
            gym.register(id, entry_point="townlet.gym.retro:Retro", kwargs={"game": game})


_register()
