"""Domain `rank`: which of several candidates first, in this context? In the shapes of the Personalizer API."""

from townlet.decide.domains.rank.domain import DOMAIN

__all__ = ["DOMAIN"]
