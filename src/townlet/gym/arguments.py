"""The arguments that recipes and runs may pass to environments without permission to run code.

An argument may be a path that the environment trusts: a configuration of VizDoom names the program to start. Numbers,
booleans and null pass, and the texts listed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from townlet.config import user_code
from townlet.errors import TownletError
from townlet.gym import extras

SHOWN: Final = 80  # characters of a value in a message


@dataclass(frozen=True)
class HarmlessArguments:
    """Patterns of what a family of environments accepts, each for a whole name or text."""

    texts: Mapping[str, str] = field(default_factory=dict)  # argument → texts, also in its lists and mappings
    names: str = r"[A-Za-z_]\w*"  # arguments whose values may be numbers, booleans or null


FROZEN_LAKE: Final = HarmlessArguments({"map_name": "4x4|8x8", "desc": "[SFHG]+"})
OF_OTHERS: Final = HarmlessArguments()
# By extra, or by the name of an environment that needs none.
HARMLESS: Final = {
    "FrozenLake": FROZEN_LAKE,
    "FrozenLake8x8": FROZEN_LAKE,
    extras.ATARI: HarmlessArguments({"obs_type": "rgb|grayscale|ram"}),
    "mujoco": HarmlessArguments(
        {"default_camera_config": "type|fixedcamid|trackbodyid|lookat|distance|azimuth|elevation"}
    ),
    "minigrid": HarmlessArguments(
        {
            "obj_type": "ball|box|key",
            "obstacle_type": "lava|wall",
            "select_by": "color|loc",
            "first_color": "red|green|blue|purple|yellow|grey",
            "second_color": "red|green|blue|purple|yellow|grey",
            "wfc_config": "[A-Za-z0-9]+",  # looked up in a table of presets
        }
    ),
    # VizDoom turns further arguments into lines of a configuration, where even a number may be a path.
    "vizdoom": HarmlessArguments(
        {"screen_resolution": r"RES_\d+X\d+", "screen_format": "RGB24|GRAY8"},
        r"frame_skip|max_buttons_pressed|treat_episode_timeout_as_truncation|use_multi_binary_action_space"
        r"|doom_skill|episode_(start_time|timeout)|(death|living)_(penalty|reward)|render_\w+"
        r"|(audio|automap|depth|labels|notifications)_buffer_enabled",
    ),
    "retro": HarmlessArguments({"actions": "all|discrete|filtered|multi_discrete", "obs_type": "image|ram"}, "players"),
}


def require_harmless(id: str, kwargs: Mapping[str, Any]) -> None:
    """Raise TownletError for an argument that may name a file or a program, unless code is permitted."""
    if user_code.permitted():
        return
    family = extras.family(id)
    harmless = HARMLESS.get(family.extra if family else id.partition("-v")[0], OF_OTHERS)
    for name, value in kwargs.items():
        texts = list(_texts(value))
        pattern = harmless.texts.get(name)
        if all(pattern and re.fullmatch(pattern, text) for text in texts) if texts else _is_named(name, harmless):
            continue
        what = f"gym.kwargs.{name} = {str(value)[:SHOWN]!r}: {id} may read this as the name of a file or a program"
        fix = "leave it out; or find out what it does, and add --allow-code if you trust it"
        raise TownletError(what, f"{fix} (in Python: townlet.allow_code())")


def _is_named(name: str, harmless: HarmlessArguments) -> bool:
    return name in harmless.texts or re.fullmatch(harmless.names, name) is not None


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value, including the keys of mappings and what is neither a number nor a container."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif not isinstance(value, int | float | None):
        yield str(value)
