"""First names of agents: the same agent always has the same one."""

from __future__ import annotations

import hashlib
from typing import Final

NAMES: Final = (
    "Ada", "Alma", "Amir", "Ana", "Anton", "Aya", "Basil", "Bea", "Ben", "Bo", "Carla", "Chen", "Cleo", "Dana", "David",
    "Dina", "Edda", "Eli", "Ella", "Emil", "Enzo", "Esra", "Eva", "Farah", "Felix", "Fina", "Finn", "Gina", "Greta",
    "Hana", "Henri", "Ida", "Ilan", "Ines", "Iris", "Ivo", "Jana", "Jonas", "Juno", "Kai", "Kira", "Lars", "Leila",
    "Leo", "Lina", "Lotte", "Luca", "Mara", "Mateo", "Maya", "Mila", "Milo", "Mina", "Nadia", "Nico", "Nils", "Noa",
    "Nora", "Olga", "Omar", "Oskar", "Pablo", "Paula", "Pia", "Quinn", "Rafa", "Remo", "Rosa", "Ruth", "Sami", "Sara",
    "Selma", "Simon", "Sofia", "Tariq", "Tess", "Theo", "Tilda", "Tom", "Uma", "Vera", "Viktor", "Wanda", "Yara",
    "Yusuf", "Zara", "Zoe",
)  # fmt: skip


def first_name(*identity: object) -> str:
    """The name of an agent that is identified by these values, such as its run and row."""
    digest = hashlib.sha256(repr(identity).encode()).digest()
    return NAMES[int.from_bytes(digest[:4], "big") % len(NAMES)]
