"""Console games through stable-retro as Gymnasium ids: `retro/Airstriker-Genesis-v0`.

Importing this module registers every game that stable-retro lists. Most of them need a ROM that the user owns.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import gymnasium as gym
import stable_retro
from gymnasium import spaces

from townlet.errors import TownletError

PREFIX: Final = "retro/"
IMPORT_ROM: Final = "if you own the game, import it: python -m stable_retro.import FOLDER"


class Retro(gym.Wrapper[Any, Any, Any, Any]):
    """A stable-retro game that renders only on request and names its actions."""

    def __init__(
        self,
        game: str,
        render_mode: str | None = None,
        actions: Literal["all", "filtered", "discrete", "multi_discrete"] = "filtered",
        **kwargs: Any,
    ) -> None:
        kinds = {kind.name.lower(): kind for kind in stable_retro.Actions}
        if actions not in kinds:
            raise ValueError(f"unknown actions '{actions}'; choose from {', '.join(kinds)}")
        if isinstance(obs_type := kwargs.get("obs_type"), str):
            kwargs["obs_type"] = {kind.name.lower(): kind for kind in stable_retro.Observations}[obs_type]
        try:
            game_env = stable_retro.make(game, use_restricted_actions=kinds[actions], render_mode=render_mode, **kwargs)
        except FileNotFoundError:
            raise TownletError(f"the ROM of {game} is missing", IMPORT_ROM) from None
        super().__init__(game_env)

    def get_action_meanings(self) -> list[str]:
        """The buttons of each discrete action."""
        space = self.env.action_space
        count = int(space.n) if isinstance(space, spaces.Discrete) else 0
        game: Any = self.env
        return [" + ".join(game.get_action_meaning(action)) or "nothing" for action in range(count)]


for _game in stable_retro.data.list_games():
    if (_id := PREFIX + _game) not in gym.registry:
        gym.register(_id, entry_point="townlet.gym.retro:Retro", kwargs={"game": _game})
