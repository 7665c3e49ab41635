"""One torch thread, because the tensors are small."""

from __future__ import annotations
