"""Any Gymnasium environment as a batched environment: construction, spaces, autoreset, wrappers, saving."""

from townlet.config.user_code import execute_file, wrapper

__all__ = ["execute_file", "wrapper"]
