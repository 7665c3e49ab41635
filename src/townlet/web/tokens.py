"""Access tokens: roles and names, where tokens come from, and a throttle against guessing.

Tokens come from a file or the environment, not from the command line, which every user can read. A token file:

    game: {hive-eu: 4f9c…, hive-us: 81d2…}    # or one token for all games
    operator: 77aa…
    viewer: 0c3e…
"""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from townlet.config.yaml import MAX_BYTES, Node, parse
from townlet.errors import ConfigError, SourceLocation, TownletError, did_you_mean
from townlet.web.limits import TokenBucket

GAME: Final = "game"  # requests decisions and reports outcomes
OPERATOR: Final = "operator"  # reads and changes everything
VIEWER: Final = "viewer"  # reads what the pages show
ROLES: Final = (GAME, OPERATOR, VIEWER)
READERS: Final = frozenset({OPERATOR, VIEWER})
OPERATORS: Final = frozenset({OPERATOR})
TOKEN_VARIABLES: Final = {role: f"TOWNLET_{role.upper()}_TOKEN" for role in ROLES}

MIN_LENGTH: Final = 16
MAX_LENGTH: Final = 200
UNGUESSABLE_LENGTH: Final = 32  # of generated tokens; a valid token at least this long is never throttled
TOKEN_PATTERN: Final = re.compile(rf"[A-Za-z0-9._~-]{{{MIN_LENGTH},{MAX_LENGTH}}}")  # safe in headers, cookies, links
NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9._-]{1,40}")
CODE_SECONDS: Final = 60.0  # validity of a single-use code
SAFE_METHODS: Final = ("GET", "HEAD")

MAX_GUESSES: Final = 10  # wrong tokens that an address may send before it is throttled
GUESS_SECONDS: Final = 1.0  # between further guesses
MAX_ADDRESSES: Final = 4096  # tracked; the least recently used one is dropped first

Access = Callable[[str, str], frozenset[str] | None]
"""(method, path) → roles that may use it, None if no token is needed; the method of a WebSocket is WEBSOCKET."""


class Identity(NamedTuple):
    """Role and name of a token."""

    role: str
    name: str


ANONYMOUS: Final = Identity(OPERATOR, "anonymous")  # the identity of every request if the server runs with --no-token


class Tokens:
    """The tokens of a server: one for each name of each role."""

    def __init__(self, tokens: Mapping[str, Mapping[str, str]], where: SourceLocation | None = None) -> None:
        self._tokens = validate_tokens(tokens, where)

    def identify(self, token: str) -> Identity | None:
        """The identity of a token, or None; every known token is compared, in constant time."""
        found, given = None, token.encode()
        for identity, known in self._tokens.items():
            if secrets.compare_digest(known.encode(), given):
                found = identity
        return found

    def values(self) -> list[str]:
        """All tokens, to keep them out of messages."""
        return list(self._tokens.values())

    def first(self, role: str) -> str | None:
        """The first token of a role, if it has one."""
        return next((token for identity, token in self._tokens.items() if identity.role == role), None)


class OneTimeCodes:
    """Single-use codes, valid for a minute, for links passed to a browser as an argument, which others can see."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._valid_until: dict[str, float] = {}

    def new(self) -> str:
        code = new_token()
        self._valid_until[code] = self._clock() + CODE_SECONDS
        return code

    def redeem(self, code: str) -> bool:
        """Consume a code; returns whether it was valid."""
        return self._valid_until.pop(code, -1.0) >= self._clock()


def new_token() -> str:
    """A random token with 192 bits of entropy."""
    return secrets.token_urlsafe(24)


def validate_tokens(tokens: Mapping[str, Mapping[str, str]], where: SourceLocation | None) -> dict[Identity, str]:
    """Tokens by identity, from tokens by role and name; raises TownletError, whose messages never contain a token."""
    valid: dict[Identity, str] = {}
    for role, named in tokens.items():
        for name, token in named.items():
            owner = role if role == name else f"{role} '{name}'"
            if not NAME_PATTERN.fullmatch(name):
                raise TownletError(f"'{name[:40]}' is not a valid {role} name", f"use {NAME_PATTERN.pattern}", where)
            if not TOKEN_PATTERN.fullmatch(token):
                what = f"the token of the {owner} is not {MIN_LENGTH} to {MAX_LENGTH} letters, digits or any of . _ ~ -"
                raise TownletError(what, "make one with: openssl rand -hex 24", where)
            if token in valid.values():
                raise TownletError(f"the token of the {owner} is used twice", "give each its own token", where)
            valid[Identity(role, name)] = token
    return valid


def default_access(method: str, path: str) -> frozenset[str] | None:
    """Default access: requests that change something need the operator, all others also allow a viewer."""
    return READERS if method in SAFE_METHODS or method == "WEBSOCKET" else OPERATORS


def environment_tokens(roles: Sequence[str] = ROLES) -> dict[str, dict[str, str]]:
    """Tokens in TOWNLET_GAME_TOKEN, TOWNLET_OPERATOR_TOKEN and TOWNLET_VIEWER_TOKEN, where they are set."""
    values = {role: os.environ.get(TOKEN_VARIABLES[role], "") for role in roles}
    tokens = {role: {role: token} for role, token in values.items() if token}
    for role, named in tokens.items():
        validate_tokens({role: named}, SourceLocation(TOKEN_VARIABLES[role]))  # an error names the variable
    validate_tokens(tokens, SourceLocation("environment"))
    return tokens


def read_token_file(path: Path, roles: Sequence[str] = ROLES, follow_links: bool = True) -> dict[str, dict[str, str]]:
    """Tokens by role and name, from a file that only its owner can read."""
    where = SourceLocation(str(path))
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW)
    try:
        with open(os.open(path, flags), "rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise TownletError("the token file is not a regular file", "give the path of a regular file", where)
            if state.st_mode & 0o077:
                raise TownletError("other users can read the token file", f"run: chmod 600 {where.source}", where)
            if state.st_uid not in (os.geteuid(), 0):
                raise TownletError("the token file belongs to another user", "copy it to a file that you own", where)
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
    tokens = _parse_entries(root, roles)
    validate_tokens(tokens, where)
    return tokens


def _parse_entries(root: Node, roles: Sequence[str]) -> dict[str, dict[str, str]]:
    if not isinstance(root.value, dict) or not root.value:
        raise TownletError("a token file maps roles to tokens", f"add lines for {', '.join(roles)}", root.location)
    tokens: dict[str, dict[str, str]] = {}
    for role, node in root.value.items():
        if role not in ROLES:
            where = node.key_location or node.location
            raise TownletError(f"there is no role '{role[:40]}'", did_you_mean(role, roles), where)
        if role in roles:
            named: Mapping[str, Node] = node.value if isinstance(node.value, dict) else {role: node}
            for name, child in named.items():
                if not isinstance(child.value, str):
                    what = f"the token of {f'{role}.{name}'[:80]} is not a string"
                    raise TownletError(what, "write it in quotes", child.location)
                tokens.setdefault(role, {})[name] = child.value
    return tokens


class AddressState(NamedTuple):
    """How many wrong tokens an address may still send, and the identities that were accepted from it."""

    cookie_guesses: TokenBucket  # separate: a page that reconnects with a stale cookie must not block a new login
    other_guesses: TokenBucket
    accepted: set[Identity]


class LoginThrottle:
    """Slows down guessing of tokens: an address may send a few wrong ones, then one per second.

    An identity that was accepted from an address stays accepted there; otherwise another user of the same address
    (on loopback, another process) could lock out the operator by guessing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._addresses: OrderedDict[str, AddressState] = OrderedDict()  # least recently used first

    def allows(self, address: str, from_cookie: bool, identity: Identity | None) -> bool:
        """Whether this attempt may be answered; `identity` is None for a wrong token, which is counted."""
        network = network_of(address)
        if network not in self._addresses:
            cookie_guesses = TokenBucket(1 / GUESS_SECONDS, MAX_GUESSES, self._clock)
            other_guesses = TokenBucket(1 / GUESS_SECONDS, MAX_GUESSES, self._clock)
            self._addresses[network] = AddressState(cookie_guesses, other_guesses, set())
        self._addresses.move_to_end(network)
        if len(self._addresses) > MAX_ADDRESSES:
            self._addresses.popitem(last=False)
        state = self._addresses[network]
        if identity in state.accepted:
            return True
        guesses = state.cookie_guesses if from_cookie else state.other_guesses
        if identity is None:
            return guesses.take()
        if guesses.level() < 1 - 1e-6:  # throttled; 1e-6 absorbs rounding
            return False
        state.accepted.add(identity)
        return True


def network_of(address: str) -> str:
    """The /64 network of an IPv6 address, since one subscriber has all of it; other addresses unchanged."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network(f"{address.partition('%')[0]}/64", strict=False))
    except ValueError:
        return address
