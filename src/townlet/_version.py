"""Version of the package, in a module of its own so that every module can import it without a cycle."""

__version__ = "0.2.0"
