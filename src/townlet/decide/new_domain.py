"""The file of a domain that `townlet decide new` writes. It is imported without the domains, which take seconds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from townlet.errors import TownletError
from townlet.runs import disk

SUFFIX: Final = ".py"
NAME_CHARACTERS: Final = "lower-case letters, digits and hyphens"
MAX_NAME: Final = 40  # characters
EXAMPLE: Final = Path(__file__).with_suffix(".txt")
NAME: Final = "my-game"  # in the example
VALID_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def is_name(name: object) -> bool:
    """Whether this can be the name of a domain."""
    return isinstance(name, str) and len(name) <= MAX_NAME and VALID_NAME.fullmatch(name) is not None


def write_example(name: str) -> Path:
    """Write the example as a new file, by the name of its domain or by its path; returns the path."""
    path = Path(name if name.endswith(SUFFIX) else f"{name}{SUFFIX}")
    if not is_name(path.stem):
        what = f"'{path.stem}' cannot be the name of a domain"
        raise TownletError(what, f"use at most {MAX_NAME} {NAME_CHARACTERS}, such as my-game")
    text = EXAMPLE.read_text(encoding="utf-8").replace(NAME, path.stem)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise TownletError("the file exists, and is not overwritten", "choose another name", path) from None
    except OSError as error:
        raise disk.describe_error(error, f"cannot write {path}") from error
    return path
