"""Storage in PostgreSQL, for several processes and machines.

Durability, ordering, locks and failover are those of the database; `--storage postgresql://…` selects it.
"""
