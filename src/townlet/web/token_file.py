"""Access tokens from a file or from the environment: never from the command line, which every user of a machine reads.

game: {hive-eu: 4f9c…, hive-us: 81d2…}    # or one token for all games
operator: 77aa…
viewer: 0c3e…
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from townlet.config.yaml import MAX_BYTES, Node, parse
from townlet.errors import Mark, Mistakes, TownletError, did_you_mean
from townlet.web.tokens import ROLES, Tokens

VARIABLES: Final = {role: f"TOWNLET_{role.upper()}_TOKEN" for role in ROLES}


def environment_tokens(roles: Sequence[str] = ROLES) -> dict[str, dict[str, str]]:
    """Tokens in TOWNLET_GAME_TOKEN, TOWNLET_OPERATOR_TOKEN and TOWNLET_VIEWER_TOKEN, where they are set."""
    given = {role: os.environ.get(VARIABLES[role], "") for role in roles}
    found = {role: {role: token} for role, token in given.items() if token}
    for role, named in found.items():
        Tokens({role: named}, Mark(VARIABLES[role]))  # so that an error names the variable
    Tokens(found, Mark("environment"))
    return found


def read_token_file(path: Path, roles: Sequence[str] = ROLES, follow_links: bool = True) -> dict[str, dict[str, str]]:
    """Tokens by role and name, of a file that only its owner can read."""
    where, flags = Mark(str(path)), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(path, flags if follow_links else flags | os.O_NOFOLLOW), "rb") as file:
            _refuse_exposed(os.fstat(file.fileno()), where)
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        what = f"cannot read the token file: {error.strerror}"
        raise TownletError(what, "check the path, and that you may read it", where) from None
    try:
        root = parse(data, str(path))
    except Mistakes as error:  # its message would show parts of the file
        place = error.mistakes[0].where or where
        fix = 'write lines such as operator: "…", with the tokens in quotes'
        raise TownletError("the token file is not valid YAML or JSON", fix, place) from None
    found = dict(_entries(root, roles))
    Tokens(found, where)
    return found


def _refuse_exposed(state: os.stat_result, where: Mark) -> None:
    """Refuse a file that other users can read or replace."""
    if not stat.S_ISREG(state.st_mode):
        raise TownletError("the token file is not a plain file", "name a file", where)
    if state.st_mode & 0o077:
        raise TownletError("other users can read the token file", f"run: chmod 600 {where.source}", where)
    if state.st_uid not in (os.geteuid(), 0):
        raise TownletError("the token file belongs to another user", "copy it to a file of your own", where)


def _entries(root: Node, roles: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    if not isinstance(root.value, dict) or not root.value:
        raise TownletError("a token file maps roles to tokens", f"add lines for {', '.join(roles)}", root.mark)
    found = []
    for role, node in root.value.items():
        if role not in ROLES:
            raise TownletError(f"there is no role '{role[:40]}'", did_you_mean(role, roles), node.key_mark or node.mark)
        if role in roles:
            named: Mapping[str, Node] = node.value if isinstance(node.value, dict) else {role: node}
            found.append((role, {name: _token(of, f"{role}.{name}") for name, of in named.items()}))
    return found


def _token(node: Node, key: str) -> str:
    if not isinstance(node.value, str):
        raise TownletError(f"the token of {key[:80]} is not text", "write it in quotes", node.mark)
    return node.value
