"""Storage in PostgreSQL, for several processes and machines.

Durability, ordering, locks and failover are those of the database; `--storage postgresql://…` selects it.
"""

from townlet.errors import TownletError

try:
    import psycopg as psycopg
except ImportError as error:
    raise TownletError("storage in PostgreSQL needs psycopg", "pip install 'townlet[postgres]'") from error
