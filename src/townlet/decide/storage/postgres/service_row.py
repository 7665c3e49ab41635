"""The row that describes the service: the id of its log, the key of its decision ids, and its settings."""

from __future__ import annotations

import json
import secrets
from operator import attrgetter

from townlet.decide import events
from townlet.decide.domain import Domain
from townlet.decide.settings import DecideSettings, settings_model
from townlet.decide.state import FIXED_SETTINGS
from townlet.decide.storage.postgres.database import Database, migrate, without_password
from townlet.errors import TownletError


def open_service(database: Database, domain: Domain, settings: DecideSettings, at: float) -> str:
    """Create the service in an empty database, or adopt new settings; returns the key of its decision ids."""
    migrate(database)
    text = json.dumps(settings.model_dump(mode="json"), sort_keys=True)
    with database.transaction() as connection:
        connection.execute("LOCK TABLE service IN EXCLUSIVE MODE")
        row = connection.execute("SELECT key, settings FROM service").fetchone()
        if row is None:
            key = secrets.token_hex(16)
            sql = "INSERT INTO service (id, key, settings) VALUES (%s, %s, %s)"
            connection.execute(sql, [secrets.token_hex(16), key, text])
        else:
            key, stored = row
            _check_settings(json.loads(stored), domain, settings, without_password(database.url))
            if stored == text:
                return str(key)
            connection.execute("UPDATE service SET settings = %s", [text])
        started = events.ServiceStarted(key, settings.model_dump(mode="json"), at, events.SCHEMA)
        connection.execute("INSERT INTO event (body) VALUES (%s)", [events.encode(started).decode()])
        return str(key)


def _check_settings(stored: dict[str, object], domain: Domain, settings: DecideSettings, where: str) -> None:
    """Refuse another domain, and settings that are fixed when a service is created."""
    if stored["domain"] != domain.name:
        what = f"{where} holds decisions for {stored['domain']}, not for {domain.name}"
        raise TownletError(what, f"serve {stored['domain']}, or name another database")
    domain.check_log(stored)
    before = settings_model(domain).model_validate_json(json.dumps(stored))
    for name in (*FIXED_SETTINGS, *domain.fixed_settings):
        current, fixed = attrgetter(name)(settings), attrgetter(name)(before)
        if current != fixed:
            what = f"{name} is {current}, but this service was created with {fixed}"
            raise TownletError(what, f"set {name}={fixed}, or name another database")
