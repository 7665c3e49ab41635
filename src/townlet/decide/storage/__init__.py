"""Durable storage of the decision service: write-ahead log, snapshots, versions, backup and verification."""

from typing import Final, NamedTuple

# Contents of a service folder.
LOG: Final = "log"
VERSIONS: Final = "versions"
SNAPSHOTS: Final = "snapshots"
TOKENS: Final = "tokens.json"
# Beginnings of the URL of a database, also of one with a slash too few.
URL_SCHEMES: Final = ("postgresql:", "postgres:")


class StorageNotice(NamedTuple):
    """A problem with a stored file, found at startup: logged as a warning and raised as an alarm."""

    name: str  # name of the alarm
    what: str
    fix: str
    critical: bool = True
