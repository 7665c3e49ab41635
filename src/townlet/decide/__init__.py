"""The decision service: answers a live game within milliseconds, and learns from the outcomes.

The modules here are general; everything specific to a game is in `domains`, everything durable in `storage`.
"""

from typing import Final

MAX_GAMES: Final = 4096  # game connections per service
