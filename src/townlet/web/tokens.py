"""Access tokens: the role and the name that each one stands for, and which roles may use which path."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from townlet.config.yaml import MAX_BYTES, Node, parse
from townlet.errors import ConfigError, SourceLocation, TownletError, did_you_mean

GAME: Final = "game"  # asks for decisions and reports outcomes
OPERATOR: Final = "operator"  # reads and changes everything
VIEWER: Final = "viewer"  # reads what the pages show
ROLES: Final = (GAME, OPERATOR, VIEWER)
READERS: Final = frozenset({OPERATOR, VIEWER})
OPERATORS: Final = frozenset({OPERATOR})

MIN_LENGTH: Final = 16  # characters of a token
MAX_LENGTH: Final = 200
UNGUESSABLE_LENGTH: Final = 32  # characters, as generated ones have: no number of attempts finds such a token
TOKEN_PATTERN: Final = re.compile(
    rf"[A-Za-z0-9._~-]{{{MIN_LENGTH},{MAX_LENGTH}}}"
)  # safe in headers, cookies and links
NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9._-]{1,40}")
CODE_SECONDS: Final = 60.0  # seconds for which a single-use code is valid
SAFE_METHODS: Final = ("GET", "HEAD")

Access = Callable[[str, str], frozenset[str] | None]
"""(method, path) → the roles that may use it, None where no token is needed; the method of a socket is WEBSOCKET."""


class Identity(NamedTuple):
    """The role and the name that a token stands for."""

    role: str
    name: str

    @property
    def is_operator(self) -> bool:
        """Whether it may change anything."""
        return self.role == OPERATOR


ANONYMOUS: Final = Identity(OPERATOR, "anonymous")  # of every request to a server that was started with --no-token


class Tokens:
    """The tokens of a server: one for each name of each role."""

    def __init__(self, tokens: Mapping[str, Mapping[str, str]], where: SourceLocation | None = None) -> None:
        self._known: dict[Identity, str] = {}
        for role, named in tokens.items():
            for name, token in named.items():
                self._add(Identity(role, name), token, where)

    def _add(self, identity: Identity, token: str, where: SourceLocation | None) -> None:
        """Refuse a weak or a duplicate token; messages never contain a token."""
        of = identity.role if identity.role == identity.name else f"{identity.role} '{identity.name}'"
        if not NAME_PATTERN.fullmatch(identity.name):
            raise TownletError(
                f"'{identity.name[:40]}' is not a valid {identity.role} name", f"use {NAME_PATTERN.pattern}", where
            )
        if not TOKEN_PATTERN.fullmatch(token):
            what = f"the token of the {of} is not {MIN_LENGTH} to {MAX_LENGTH} letters, digits or any of . _ ~ -"
            raise TownletError(what, "make one with: openssl rand -hex 24", where)
        if token in self._known.values():
            raise TownletError(f"the token of the {of} is used twice", "give each its own token", where)
        self._known[identity] = token

    def find(self, given: str) -> Identity | None:
        """The identity of a token; every known token is compared, in constant time."""
        found, offered = None, given.encode()
        for identity, token in self._known.items():
            if secrets.compare_digest(token.encode(), offered):
                found = identity
        return found

    def first(self, role: str) -> str | None:
        """The first token of a role; None where the role has none."""
        return next((token for identity, token in self._known.items() if identity.role == role), None)

    def as_json(self) -> dict[str, dict[str, str] | str]:
        """The form of a token file: a plain text where the only name of a role is the role's own."""
        found: dict[str, dict[str, str] | str] = {}
        for role in ROLES:
            named = {identity.name: token for identity, token in self._known.items() if identity.role == role}
            if named:
                found[role] = named[role] if list(named) == [role] else named
        return found


class OneTimeCodes:
    """Single-use codes that replace the operator's token for a minute.

    A link that a program opens in a browser appears on a command line, which every user of the machine can read.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def new(self) -> str:
        """A new code."""
        code = new_token()
        self._until[code] = self._clock() + CODE_SECONDS
        return code

    def redeem(self, code: str) -> bool:
        """Consume a code; whether it was valid."""
        return self._until.pop(code, -1.0) >= self._clock()


def new_token() -> str:
    """192 random bits."""
    return secrets.token_urlsafe(24)


def generate_tokens(*roles: str) -> Tokens:
    """A new token for each role."""
    return Tokens({role: {role: new_token()} for role in roles})


def default_access(method: str, path: str) -> frozenset[str] | None:
    """Default access: requests that change something need the operator, all others also allow a viewer."""
    return READERS if method in SAFE_METHODS or method == "WEBSOCKET" else OPERATORS


TOKEN_VARIABLES: Final = {role: f"TOWNLET_{role.upper()}_TOKEN" for role in ROLES}


def environment_tokens(roles: Sequence[str] = ROLES) -> dict[str, dict[str, str]]:
    """Tokens in TOWNLET_GAME_TOKEN, TOWNLET_OPERATOR_TOKEN and TOWNLET_VIEWER_TOKEN, where they are set."""
    given = {role: os.environ.get(TOKEN_VARIABLES[role], "") for role in roles}
    found = {role: {role: token} for role, token in given.items() if token}
    for role, named in found.items():
        Tokens({role: named}, SourceLocation(TOKEN_VARIABLES[role]))  # so that an error names the variable
    Tokens(found, SourceLocation("environment"))
    return found


def read_token_file(path: Path, roles: Sequence[str] = ROLES, follow_links: bool = True) -> dict[str, dict[str, str]]:
    """Tokens by role and name, of a file that only its owner can read."""
    where, flags = SourceLocation(str(path)), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(path, flags if follow_links else flags | os.O_NOFOLLOW), "rb") as file:
            _refuse_exposed(os.fstat(file.fileno()), where)
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        what = f"cannot read the token file: {error.strerror}"
        raise TownletError(what, "check the path, and that you may read it", where) from None
    try:
        root = parse(data, str(path))
    except ConfigError as error:  # its message would show parts of the file
        place = error.diagnostics[0].where or where
        fix = 'write lines such as operator: "…", with the tokens in quotes'
        raise TownletError("the token file is not valid YAML or JSON", fix, place) from None
    found = dict(_entries(root, roles))
    Tokens(found, where)
    return found


def _refuse_exposed(state: os.stat_result, where: SourceLocation) -> None:
    """Refuse a file that other users can read or replace."""
    if not stat.S_ISREG(state.st_mode):
        raise TownletError("the token file is not a plain file", "name a file", where)
    if state.st_mode & 0o077:
        raise TownletError("other users can read the token file", f"run: chmod 600 {where.source}", where)
    if state.st_uid not in (os.geteuid(), 0):
        raise TownletError("the token file belongs to another user", "copy it to a file of your own", where)


def _entries(root: Node, roles: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    if not isinstance(root.value, dict) or not root.value:
        raise TownletError("a token file maps roles to tokens", f"add lines for {', '.join(roles)}", root.location)
    found = []
    for role, node in root.value.items():
        if role not in ROLES:
            raise TownletError(
                f"there is no role '{role[:40]}'", did_you_mean(role, roles), node.key_location or node.location
            )
        if role in roles:
            named: Mapping[str, Node] = node.value if isinstance(node.value, dict) else {role: node}
            found.append((role, {name: _token(of, f"{role}.{name}") for name, of in named.items()}))
    return found


def _token(node: Node, key: str) -> str:
    if not isinstance(node.value, str):
        raise TownletError(f"the token of {key[:80]} is not text", "write it in quotes", node.location)
    return node.value
