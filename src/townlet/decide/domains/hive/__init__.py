"""The domain `hive`: a queen spawns parasites on a map of 20 × 20 chunks, to disturb a player's workers.

Here: all that the service must know of this game, and the game itself, simulated. Not here: serving and learning.
"""

from townlet.decide.domains.hive.domain import DOMAIN

__all__ = ["DOMAIN"]
