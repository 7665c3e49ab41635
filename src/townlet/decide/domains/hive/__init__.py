"""Domain `hive`: a queen spawns parasites on a map of 20 × 20 chunks to disturb a player's workers."""

from townlet.decide.domains.hive.domain import DOMAIN

__all__ = ["DOMAIN"]
