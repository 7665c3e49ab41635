"""The domain `bandit-ads`: which of twelve advertisements is shown to a visitor, and whether he clicks on it.

Clicks come later or never. Here: all that the service must know of this, and visitors, simulated.
"""

from townlet.decide.domains.bandit_ads.domain import DOMAIN

__all__ = ["DOMAIN"]
