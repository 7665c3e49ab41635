"""What identifies the service: the id of its log, its settings, and the keys of its decision ids."""

from __future__ import annotations

import json
import secrets
from operator import attrgetter
from typing import Any, Final

from psycopg import Connection

from townlet.decide import events
from townlet.decide.domain import Domain
from townlet.decide.settings import DecideSettings, stored_settings
from townlet.decide.state import FIXED_SETTINGS
from townlet.decide.storage.postgres.database import Database, migrate, without_password
from townlet.decide.storage.postgres.event_table import continue_transactions
from townlet.errors import TownletError

# As `events.encode` of a `ServiceStarted`. The lock excludes that another process changes the settings meanwhile.
INSERT_START: Final = """
    INSERT INTO event (body)
    SELECT json_build_array('servicestarted', %s::text, settings::json, %s::float8, %s::text) FROM service FOR SHARE"""


def open_service(database: Database, domain: Domain, settings: DecideSettings, at: float) -> None:
    """Create the service in an empty database, or adopt new settings."""
    migrate(database)
    text = encode_settings(settings)
    with database.transaction() as connection:
        connection.execute("SET LOCAL lock_timeout = 0")  # another process may be starting
        connection.execute("LOCK TABLE service IN EXCLUSIVE MODE")
        row = connection.execute("SELECT settings FROM service").fetchone()
        if row is None:
            create_service(connection, secrets.token_hex(16), settings)
        else:
            _check_settings(json.loads(row[0]), domain, settings, without_password(database.url))
            continue_transactions(connection)
        if row is None or row[0] != text:
            connection.execute("UPDATE service SET settings = %s", [text])
            add_key(connection, secrets.token_hex(16), at)


def encode_settings(settings: DecideSettings) -> str:
    """Settings as they are stored."""
    return json.dumps(settings.model_dump(mode="json"), sort_keys=True)


def create_service(connection: Connection[Any], id: str, settings: DecideSettings) -> None:
    """Store the id of the log, and the settings."""
    connection.execute("INSERT INTO service (id, settings) VALUES (%s, %s)", [id, encode_settings(settings)])


def add_key(connection: Connection[Any], key: str, at: float) -> None:
    """Store the event of a start, with a key for decision ids and with the settings that apply already."""
    connection.execute(INSERT_START, [key, at, events.SCHEMA])


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
