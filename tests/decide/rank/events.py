"""Requests of a small ranking problem: which of two kinds of coffee first?"""

from __future__ import annotations

from typing import Any

import numpy as np

DRINKS = ("espresso", "latte", "decaf")


def request(event: str, hour: str = "morning", **changes: Any) -> dict[str, Any]:
    actions = [{"id": drink, "features": [{"milk": drink == "latte", "strength": k}]} for k, drink in enumerate(DRINKS)]
    whole = {
        "type": "rank_request",
        "eventId": event,
        "contextFeatures": [{"time": {"hour": hour}}],
        "actions": actions,
    }
    return whole | changes


def reward(event: str, value: float = 1.0) -> dict[str, Any]:
    return {"type": "reward", "eventId": event, "value": value}


def activate(event: str) -> dict[str, Any]:
    return {"type": "activate", "eventId": event}


def liked(hour: str, drink: str) -> float:
    """The hidden taste: espresso in the morning, decaf in the evening."""
    return float(drink == {"morning": "espresso", "noon": "latte", "evening": "decaf"}[hour])


def hours(count: int, seed: int = 1) -> list[str]:
    return [str(hour) for hour in np.random.default_rng(seed).choice(["morning", "noon", "evening"], count)]
