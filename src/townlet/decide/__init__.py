"""The decision service: decides for a live game within milliseconds, and learns from what comes of it.

General parts lie here and know no game; what belongs to one lies in `domains`.
"""

from typing import Final

MAX_GAMES: Final = 4096  # games that a service takes at once
