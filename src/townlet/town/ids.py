"""Gymnasium ids of the shipped worlds."""

from __future__ import annotations

from typing import Final

# Gymnasium id → shipped world
IDS: Final = {
    "Townlet/Town-v0": "town",
    "Townlet/Town-L0-v0": "town-l0",
    "Townlet/Town-L0-Dual-v0": "town-l0-dual",
    "Townlet/Town-L1-v0": "town-l1",
    "Townlet/Town-L2-v0": "town-l2",
    "Townlet/Town-L3-v0": "town-l3",
    "Townlet/Town-Shuffled-v0": "town-shuffled",
    "Townlet/Town-Foggy-v0": "town-foggy",
    "Townlet/Town-Dark-v0": "town-dark",
    "Townlet/Town-House-v0": "town-house",
    "Townlet/Town-Aspatial-v0": "town-aspatial",
    "Townlet/Town-Cascades-Weak-v0": "cascades-weak",
    "Townlet/Town-Cascades-Strong-v0": "cascades-strong",
}
