"""A reference implementation of the town: slow, scalar, float64, one row, written from the specification.

Nothing here may import the engines or the compiler, or the laws would compare them with themselves.
"""

from reference.document import filled, shipped_document
from reference.town import Result, Town

__all__ = ["Result", "Town", "filled", "shipped_document"]
