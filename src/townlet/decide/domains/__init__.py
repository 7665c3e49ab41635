"""Decision domains: one module or package each, whose `DOMAIN` is all that the service uses; and those of users."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from townlet.decide.domain import Domain
from townlet.decide.domains import bandit_ads, hive, rank
from townlet.decide.domains.custom.load import load_file, load_installed
from townlet.decide.installed import installed_domains
from townlet.decide.new_domain import SUFFIX
from townlet.errors import TownletError, did_you_mean

SHIPPED: Final = (hive.DOMAIN, bandit_ads.DOMAIN, rank.DOMAIN)


class Domains(dict[str, Domain]):
    """Domains by name. Others are loaded when they are looked up: by the path of a file, or from a package."""

    def __missing__(self, name: str) -> Domain:
        points = {} if name.endswith(SUFFIX) else installed_domains()
        if name.endswith(SUFFIX):
            domain = load_file(name)
        elif name in points:
            domain = load_installed(points[name])
        else:
            file = f"{name}{SUFFIX}"
            hint = f"did you mean '{file}'?" if Path(file).is_file() else did_you_mean(name, sorted({*self, *points}))
            raise TownletError(f"no domain is called '{name[:60]}'", hint)
        if domain.name in [shipped.name for shipped in SHIPPED]:
            what = f"a domain called '{domain.name}' is included in Townlet"
            raise TownletError(what, "choose another `name`", Path(name))
        self[domain.name] = domain
        return domain


DOMAINS: Final = Domains({domain.name: domain for domain in SHIPPED})
