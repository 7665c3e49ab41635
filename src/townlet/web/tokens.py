"""Access tokens: the role and the name that each one stands for, and which roles may use which path."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from townlet.errors import Mark, TownletError

GAME: Final = "game"  # asks for decisions and reports outcomes
OPERATOR: Final = "operator"  # reads and changes everything
VIEWER: Final = "viewer"  # reads what the pages show
ROLES: Final = (GAME, OPERATOR, VIEWER)
READERS: Final = frozenset({OPERATOR, VIEWER})
OPERATORS: Final = frozenset({OPERATOR})

SHORTEST: Final = 16  # characters of a token
LONGEST: Final = 200
UNGUESSABLE: Final = 32  # characters, as generated ones have: no number of attempts finds such a token
FORM: Final = re.compile(rf"[A-Za-z0-9._~-]{{{SHORTEST},{LONGEST}}}")  # safe in headers, cookies and links
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,40}")
VALID: Final = 60.0  # seconds for which a single-use code is valid
SAFE: Final = ("GET", "HEAD")

Access = Callable[[str, str], frozenset[str] | None]
"""(method, path) → the roles that may use it, None where no token is needed; the method of a socket is WEBSOCKET."""


class Identity(NamedTuple):
    """The role and the name that a token stands for."""

    role: str
    name: str

    @property
    def operates(self) -> bool:
        """Whether it may change anything."""
        return self.role == OPERATOR


ANONYMOUS: Final = Identity(OPERATOR, "anonymous")  # of every request to a server that was started with --no-token


class Tokens:
    """The tokens of a server: one for each name of each role."""

    def __init__(self, tokens: Mapping[str, Mapping[str, str]], where: Mark | None = None) -> None:
        self._known: dict[Identity, str] = {}
        for role, named in tokens.items():
            for name, token in named.items():
                self._add(Identity(role, name), token, where)

    def _add(self, identity: Identity, token: str, where: Mark | None) -> None:
        """Refuse a weak or a duplicate token; messages never contain a token."""
        of = identity.role if identity.role == identity.name else f"{identity.role} '{identity.name}'"
        if not NAME.fullmatch(identity.name):
            raise TownletError(
                f"'{identity.name[:40]}' is not a valid {identity.role} name", f"use {NAME.pattern}", where
            )
        if not FORM.fullmatch(token):
            what = f"the token of the {of} is not {SHORTEST} to {LONGEST} letters, digits or any of . _ ~ -"
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
        self._until[code] = self._clock() + VALID
        return code

    def redeem(self, code: str) -> bool:
        """Consume a code; whether it was valid."""
        return self._until.pop(code, -1.0) >= self._clock()


def new_token() -> str:
    """192 random bits."""
    return secrets.token_urlsafe(24)


def generated(*roles: str) -> Tokens:
    """A new token for each role."""
    return Tokens({role: {role: new_token()} for role in roles})


def readers_and_operators(method: str, path: str) -> frozenset[str] | None:
    """Default access: requests that change something need the operator, all others also allow a viewer."""
    return READERS if method in SAFE or method == "WEBSOCKET" else OPERATORS
