"""Version of the package, which every module may import without importing its public interface."""

__version__ = "0.2.0"
