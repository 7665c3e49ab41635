"""Random access tokens."""

from __future__ import annotations

from townlet.web.tokens import Tokens, new_token


def generate_tokens(*roles: str) -> Tokens:
    return Tokens({role: {role: new_token()} for role in roles})
