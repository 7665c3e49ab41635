"""The town once more: slow, scalar, float64, one row, written from the rules in prose.

Nothing here may import the engines or the compiler, or the laws would compare them with themselves.
"""

from reference.document import filled, shipped_document
from reference.town import Result, Town

__all__ = ["Result", "Town", "filled", "shipped_document"]
