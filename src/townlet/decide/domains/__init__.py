"""Decision domains: one module or package each, whose `DOMAIN` is all that the service uses."""

from typing import Final

from townlet.decide.domain import Domain
from townlet.decide.domains import bandit_ads, hive, rank

DOMAINS: Final[dict[str, Domain]] = {domain.name: domain for domain in (hive.DOMAIN, bandit_ads.DOMAIN, rank.DOMAIN)}
