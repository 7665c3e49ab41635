"""The tables of the standard town, copied by hand to catch mistakes in the YAML."""

from __future__ import annotations

from typing import NamedTuple

METERS = ("energy", "hygiene", "satiation", "money", "mood", "social", "health", "fitness")

# meter: start, decay, additional loss by a move and by WAIT (health decays only through fitness)
LOSSES = {
    "energy": (1.0, 0.005, 0.005, 0.001),
    "hygiene": (1.0, 0.003, 0.003, 0.0),
    "satiation": (1.0, 0.004, 0.004, 0.0),
    "money": (0.5, 0.0, 0.0, 0.0),
    "mood": (1.0, 0.001, 0.0, 0.0),
    "social": (1.0, 0.006, 0.0, 0.0),
    "health": (1.0, 0.0, 0.0, 0.0),
    "fitness": (1.0, 0.002, 0.0, 0.0),
}

# source, target, strength; the threshold is 0.3 for all, the order is the order of the rules
CASCADES = (
    ("satiation", "health", 0.004),
    ("satiation", "energy", 0.005),
    ("mood", "energy", 0.005),
    ("hygiene", "satiation", 0.002),
    ("hygiene", "fitness", 0.002),
    ("hygiene", "mood", 0.003),
    ("social", "mood", 0.004),
    ("hygiene", "health", 0.0005),
    ("hygiene", "energy", 0.0005),
    ("social", "energy", 0.0008),
)


class Place(NamedTuple):
    """One line of the affordance table."""

    name: str
    x: int
    y: int
    ticks: int
    price: float
    hours: tuple[int, int]
    each_tick: dict[str, float]
    at_end: dict[str, float]


PLACES = (
    Place("Bed", 1, 1, 5, 0.01, (0, 24), {"energy": 0.075}, {"energy": 0.125, "health": 0.02}),
    Place("LuxuryBed", 2, 1, 5, 0.022, (0, 24), {"energy": 0.1125}, {"energy": 0.1875, "health": 0.05}),
    Place("Shower", 2, 2, 3, 0.01, (0, 24), {"hygiene": 0.1}, {"hygiene": 0.1}),
    Place("HomeMeal", 1, 3, 2, 0.015, (0, 24), {"satiation": 0.16875}, {"satiation": 0.1125, "health": 0.03}),
    Place(
        "FastFood", 5, 6, 1, 0.10, (0, 24),
        {"satiation": 0.3375, "energy": 0.1125},
        {"satiation": 0.1125, "energy": 0.0375, "social": 0.01, "fitness": -0.03, "health": -0.02},
    ),
    Place(
        "Job", 6, 6, 4, 0.0, (8, 18),
        {"money": 0.0421875, "energy": -0.0375},
        {"money": 0.05625, "social": 0.02, "health": -0.03},
    ),
    Place(
        "Labor", 7, 6, 4, 0.0, (8, 18),
        {"money": 0.05625, "energy": -0.05},
        {"money": 0.075, "social": 0.01, "fitness": -0.05, "health": -0.05},
    ),
    Place("Gym", 7, 3, 4, 0.02, (0, 24), {"fitness": 0.05625, "energy": -0.02}, {"fitness": 0.075}),
    Place(
        "Bar", 7, 0, 2, 0.075, (18, 4),
        {"social": 0.1875, "mood": 0.09375, "satiation": 0.1125},
        {"social": 0.125, "mood": 0.0625, "satiation": 0.075, "energy": -0.2, "hygiene": -0.15, "health": -0.05},
    ),
    Place(
        "Park", 0, 4, 2, 0.0, (6, 22),
        {"fitness": 0.075, "social": 0.05625, "mood": 0.05625},
        {"fitness": 0.05, "social": 0.0375, "mood": 0.0375, "energy": -0.15},
    ),
    Place("Recreation", 0, 7, 2, 0.03, (8, 22), {"mood": 0.09375, "social": 0.045}, {"mood": 0.0625, "social": 0.03}),
    Place("Therapist", 1, 7, 3, 0.05, (8, 18), {"mood": 0.1}, {"mood": 0.1}),
    Place("Doctor", 5, 1, 2, 0.04, (8, 18), {"health": 0.09375}, {"health": 0.0625}),
    Place("Hospital", 6, 1, 3, 0.05, (0, 24), {"health": 0.1}, {"health": 0.1}),
    Place(
        "CoffeeShop", 4, 4, 1, 0.02, (8, 18),
        {"energy": 0.1125, "mood": 0.0375, "social": 0.045},
        {"energy": 0.0375, "mood": 0.0125, "social": 0.015},
    ),
)  # fmt: skip

# Totals of a full session, as in the specification.
SESSIONS = {
    "Bed": {"energy": 0.5, "money": -0.05},
    "Job": {"money": 0.225, "energy": -0.15},
    "Labor": {"money": 0.30},
    "Bar": {"social": 0.5},
}
