"""Two fingerprints of a world: what it does, and how an agent is connected to it."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from townlet.interfaces.layout import Layout
from townlet.town.world.schema import WorldSpec

# Words and pictures for people: a run goes on when they change.
_FOR_PEOPLE: Final[dict[str, Any]] = {
    "description": True,
    "affordances": {"__all__": {"icon"}},
    "meters": {"__all__": {"group"}},
}
_LABELS: Final[dict[str, Any]] = {"cascades": {"__all__": {"name"}}, "modulations": {"__all__": {"name"}}}


def content_hash(spec: WorldSpec) -> str:
    """Same for two files exactly when every figure that the rules read is the same."""
    return _digest(spec.model_dump(mode="json", exclude=_FOR_PEOPLE | _LABELS))


def interface_hash(actions: tuple[str, ...], layout: Layout) -> str:
    """Same for two worlds exactly when one agent can act in both."""
    blocks = [[b.name, list(b.shape), b.low, b.high] for b in layout]
    return _digest({"actions": list(actions), "observation": blocks})


def _digest(value: Any) -> str:
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """The same value written the same way: −0.0 is 0.0."""
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return value + 0.0 if isinstance(value, float) else value
