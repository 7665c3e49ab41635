"""Simulated news site: four articles in a changing order for visitors with hidden interests."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from townlet.rng import Streams

TOPICS: Final = ("politics", "sports", "culture", "science")
SEGMENTS: Final = ("student", "parent", "retired")
# Click probability of each topic for each segment, on a working day.
CLICKS: Final = np.array(((0.1, 0.5, 0.3, 0.2), (0.3, 0.1, 0.2, 0.5), (0.5, 0.2, 0.4, 0.1)))
WEEKEND: Final = np.array((-0.1, 0.2, 0.1, 0.0))  # change of the click probabilities
MAX_LENGTH: Final = 2000  # words of an article
LENGTH_COST: Final = 0.1  # lost by the longest one


class NewsSite:
    """Every visit is an event; the reward is 1 for a click. Event ids differ between simulations."""

    def __init__(self, seed: int, territory: str, stage: int = 0) -> None:  # there is only one stage
        self._rng, self._prefix = Streams(seed).numpy(f"visitors of {territory}"), secrets.token_hex(8)
        self._visits = 0
        self._clicks: dict[str, float] = {}  # click probability of each article
        self.reward = 0.0

    def observe(self) -> dict[str, Any]:
        rng = self._rng
        segment, weekend = int(rng.integers(len(SEGMENTS))), bool(rng.random() < 2 / 7)
        order, lengths = rng.permutation(len(TOPICS)), rng.integers(200, MAX_LENGTH, len(TOPICS))
        clicks = (CLICKS[segment] + weekend * WEEKEND)[order] - LENGTH_COST * lengths / MAX_LENGTH
        articles: list[dict[str, Any]] = [
            {"id": f"article-{TOPICS[topic]}", "features": [{"topic": TOPICS[topic], "words": int(words)}]}
            for topic, words in zip(order, lengths, strict=True)
        ]
        self._clicks = dict(zip((article["id"] for article in articles), clicks.tolist(), strict=True))
        self._visits += 1
        return {
            "type": "rank_request", "eventId": f"{self._prefix}-{self._visits}",
            "contextFeatures": [{"visitor": {"segment": SEGMENTS[segment]}}, {"time": {"weekend": weekend}}],
            "actions": articles,
        }  # fmt: skip

    def apply(self, reply: Mapping[str, Any]) -> list[dict[str, Any]]:
        if reply["type"] != "rank_response":
            return []
        clicked = float(self._rng.random() < self._clicks[reply["rewardActionId"]])
        self.reward += clicked
        return [{"type": "reward", "eventId": reply["eventId"], "value": clicked}]

    def advance(self) -> list[dict[str, Any]]:
        return []
