"""Any Gymnasium environment as a batched environment: construction, spaces, autoreset, wrappers, saving."""

from townlet.config.user_code import allow_code, wrapper

__all__ = ["allow_code", "wrapper"]
