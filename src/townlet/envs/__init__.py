"""Environments by id: the town as Gymnasium environment with the pictures of it, and any Gymnasium environment as rows.

The rules of the town are not here (see `sim`), nor is anything that learns.
"""

from townlet.envs.own import allow_code, wrapper

__all__ = ["allow_code", "wrapper"]
