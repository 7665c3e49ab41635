"""Room for connections: games and dashboards, each up to a limit that the descriptors of the process allow."""

from __future__ import annotations

from typing import Final

from townlet.decide import MAX_GAMES
from townlet.web.limits import DESCRIPTOR_REMEDY, DescriptorBudget, WebSocketLimit

DASHBOARDS: Final = 256  # open at once


class ConnectionLimits:
    """Connections that a service takes at once."""

    def __init__(self, descriptors: DescriptorBudget | None = None) -> None:
        served = descriptors.app_websockets if descriptors else MAX_GAMES + DASHBOARDS
        dashboards = min(DASHBOARDS, served // 16)
        games = min(MAX_GAMES, served - dashboards)
        self.games = WebSocketLimit(games, "too many games are connected")
        self.dashboards = WebSocketLimit(dashboards, "too many dashboards are open; this page tries again later")
        self.short = games < MAX_GAMES  # of descriptors
        self.limit = descriptors.limit if descriptors else 0

    @property
    def remedy(self) -> str:
        """What to do where games are refused."""
        return (
            f"{DESCRIPTOR_REMEDY[0].upper()}{DESCRIPTOR_REMEDY[1:]}."
            if self.short
            else "Run a second service for the other games."
        )
