"""What identifies the service: the id of its log, the keys of its decision ids, and its settings."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from psycopg import Connection

from townlet.decide import events
from townlet.decide.domain import Domain
from townlet.decide.settings import DecideSettings, stored_settings
from townlet.decide.state import FIXED_SETTINGS
from townlet.decide.storage.postgres.database import Database, migrate, without_password
from townlet.errors import TownletError


def open_service(database: Database, domain: Domain, settings: DecideSettings, at: float) -> list[tuple[int, str]]:
    """Create the service in an empty database, or adopt new settings; returns the keys of its decision ids."""
    migrate(database)
    text = encode_settings(settings)
    with database.transaction() as connection:
        connection.execute("LOCK TABLE service IN EXCLUSIVE MODE")
        row = connection.execute("SELECT settings FROM service").fetchone()
        if row is None:
            create_service(connection, secrets.token_hex(16), settings, [(1, secrets.token_hex(16))])
        else:
            _check_settings(json.loads(row[0]), domain, settings, without_password(database.url))
            if row[0] != text:
                connection.execute("UPDATE service SET settings = %s", [text])
        keys = connection.execute("SELECT first, key FROM decision_key ORDER BY first").fetchall()
        if row is None or row[0] != text:
            add_start(connection, keys[-1][1], settings, at)
        return keys


def encode_settings(settings: DecideSettings) -> str:
    """Settings as they are stored."""
    return json.dumps(settings.model_dump(mode="json"), sort_keys=True)


def create_service(
    connection: Connection[Any], id: str, settings: DecideSettings, keys: Sequence[tuple[int, str]]
) -> None:
    """Store what identifies a service: the id of its log, and the keys of its decision ids."""
    connection.execute("INSERT INTO service (id, settings) VALUES (%s, %s)", [id, encode_settings(settings)])
    for first, key in keys:
        connection.execute("INSERT INTO decision_key (first, key) VALUES (%s, %s)", [first, key])


def add_start(connection: Connection[Any], key: str, settings: DecideSettings, at: float) -> None:
    """Store the event of a start with these settings."""
    started = events.ServiceStarted(key, settings.model_dump(mode="json"), at, events.SCHEMA)
    connection.execute("INSERT INTO event (body) VALUES (%s)", [events.encode(started).decode()])


def _check_settings(stored: dict[str, object], domain: Domain, settings: DecideSettings, where: str) -> None:
    """Refuse another domain, and settings that are fixed when a service is created."""
    if stored["domain"] != domain.name:
        what = f"{where} holds decisions for {stored['domain']}, not for {domain.name}"
        raise TownletError(what, f"serve {stored['domain']}, or name another database")
    domain.check_log(stored)
    with events.stored_values("the table of the service"):
        before = stored_settings(domain, stored)
    for name in (*FIXED_SETTINGS, *domain.fixed_settings):
        current, fixed = attrgetter(name)(settings), attrgetter(name)(before)
        if current != fixed:
            what = f"{name} is {current}, but this service was created with {fixed}"
            raise TownletError(what, f"set {name}={fixed}, or name another database")
