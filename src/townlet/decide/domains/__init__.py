"""What the service can decide for: a folder for each domain, whose `DOMAIN` is all that the rest knows of it."""

from typing import Final

from townlet.decide.domain import Domain
from townlet.decide.domains import bandit_ads, hive

DOMAINS: Final[dict[str, Domain]] = {found.name: found for found in (hive.DOMAIN, bandit_ads.DOMAIN)}
