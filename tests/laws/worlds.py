"""Strategies for random valid worlds, as plain documents."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from townlet.town.world.load import from_text
from townlet.town.world.tables import World

Document = dict[str, Any]
Draw = st.DrawFn

METERS = ("vigor", "purse", "cheer", "warmth", "wits", "polish", "poise", "zeal")
PLACES = ("Inn", "Mill", "Well", "Fair", "Forge")
COMPILED = 8  # meters of the shipped worlds: Numba compiles its kernels for each number of meters
SEEN_FROM_AFAR = ("window_typed", "map_typed")


def share(low: int, high: int, step: int = 1) -> st.SearchStrategy[float]:
    """A multiple of .001 × step: coarse figures keep float32 sums away from the rules' limits."""
    return st.integers(low, high).map(lambda n: n * step / 1000)


def compiled(doc: Document, *overrides: str) -> World:
    """The world of a document, loaded like a user's file."""
    return from_text(json.dumps(doc, indent=1, ensure_ascii=False), overrides=overrides)


def with_spare_meters(doc: Document) -> Document:
    """The world with meters that nothing changes, up to the number for which Numba's kernels are compiled."""
    spare = [{"name": f"spare{k}"} for k in range(len(doc["meters"]), COMPILED)]
    return doc | {"meters": [*doc["meters"], *spare]}


@st.composite
def documents(draw: Draw, meter_count: int | None = None) -> Document:
    """A complete world: map, clock, meters, links, affordances, observation and rewards."""
    names = list(METERS[: meter_count or draw(st.integers(1, len(METERS)))])
    places = list(PLACES[: draw(st.integers(1, len(PLACES)))])
    lethal = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    currency = draw(st.sampled_from([None, *names]))
    ground = draw(maps(len(places)))
    clock = draw(clocks())
    doc: Document = {
        "max_steps": draw(st.integers(4, 40)),
        "map": ground,
        "clock": clock,
        "meters": [draw(meters(name, name in lethal, ground["kind"])) for name in names],
        "lethal": lethal,
        "modulations": draw(modulations(names)),
        "cascades": draw(cascades(names)),
        "affordances": draw(affordances(places, names, currency, clock["day"])),
        "mask_unaffordable": currency is not None and draw(st.booleans()),
        "observation": draw(observations(ground, clock["temporal"])),
        "rewards": draw(rewards(names, lethal, ground["kind"])),
    }
    if currency is not None:
        doc["currency"] = currency
    if any(r["name"] == "meter_bonus" for r in doc["rewards"]):
        doc["meters"][-1].setdefault("bonus", {"reward": 0.3, "penalty": 0.7})
    _stand(doc, draw)
    _cure(doc, draw)
    return doc


@st.composite
def maps(draw: Draw, places: int) -> Document:
    """A small grid with cells for all affordances and one empty cell, or no map."""
    if draw(st.integers(0, 5)) == 0:
        return {"kind": "aspatial"}
    size = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    while _cells(size) <= places:
        size[size.index(min(size))] += 1
    ground: Document = {"kind": "grid", "size": size, "boundary": draw(st.sampled_from(["clamp", "wrap", "bounce"]))}
    ground["layout"] = draw(st.sampled_from(["fixed", "fixed", "shuffled"]))
    if draw(st.booleans()):
        ground["start"] = [draw(st.integers(0, n - 1)) for n in size]
    return ground


def _cells(size: list[int]) -> int:
    count = 1
    for n in size:
        count *= n
    return count


@st.composite
def clocks(draw: Draw) -> Document:
    on = draw(st.booleans())
    day = draw(st.integers(2, 24))
    start = draw(st.one_of(st.just("random"), st.integers(0, day - 1))) if on else 0
    return {"temporal": on, "day": day, "start": start}


@st.composite
def meters(draw: Draw, name: str, lethal: bool, kind: str) -> Document:
    """WAIT costs less than a move, and a lethal meter always loses something."""
    meter: Document = {"name": name, "start": draw(share(500 if lethal else 0, 1000))}
    meter["decay"] = draw(share(1 if lethal else 0, 8))
    if kind == "grid":
        move = draw(st.integers(2 if lethal else 0, 8))
        meter |= {"move": move / 1000, "wait": draw(st.integers(0, move // 2)) / 1000}
    if draw(st.booleans()):
        below = draw(st.integers(0, 500))
        above = draw(st.integers(below, 1000))
        meter["bonus"] = {"below": below / 1000, "above": above / 1000}
        meter["bonus"] |= {"reward": draw(share(0, 1000)), "penalty": draw(share(0, 3000))}
    return meter


def _links(names: list[str], most: int) -> st.SearchStrategy[list[tuple[str, str]]]:
    pairs = [(a, b) for a in names for b in names if a != b]
    return st.lists(st.sampled_from(pairs), max_size=most, unique=True) if pairs else st.just([])


@st.composite
def modulations(draw: Draw, names: list[str]) -> list[Document]:
    return [
        {"source": a, "target": b, "base": draw(share(0, 5)), "range": draw(share(1, 10))}
        for a, b in draw(_links(names, 2))
    ]


@st.composite
def cascades(draw: Draw, names: list[str]) -> list[Document]:
    return [
        {"source": a, "target": b, "threshold": draw(share(50, 1000)), "strength": draw(share(1, 20))}
        for a, b in draw(_links(names, 6))
    ]


@st.composite
def affordances(draw: Draw, places: list[str], names: list[str], currency: str | None, day: int) -> list[Document]:
    """Affordances without cells, which depend on the map."""
    effects = st.dictionaries(st.sampled_from(names), share(-20, 40, step=5), max_size=3)
    out: list[Document] = []
    for name in places:
        place: Document = {"name": name, "ticks": draw(st.integers(1, 4))}
        if currency is not None:
            place["price"] = draw(share(0, 12, step=10))
        if draw(st.booleans()):
            opens = draw(st.integers(0, day - 1))
            place["hours"] = [opens, draw(st.sampled_from([h for h in range(1, opens + day + 1) if h != opens]))]
        place["each_tick"] = draw(effects)
        place["at_end"] = draw(effects)
        out.append(place)
    return out


@st.composite
def observations(draw: Draw, ground: Document, temporal: bool) -> Any:
    """A preset or a list of blocks; a shuffled layout is visible, or allowed to be hidden."""
    hides = ground.get("layout") == "shuffled"
    preset = draw(st.sampled_from([None, "full", "partial", "shuffled", "foggy"]))
    if preset is not None:
        if hides and preset in ("full", "partial"):
            ground["allow_hidden_layout"] = True
        return preset
    names = ["affordance_here", "age"] + (["clock", "progress"] if temporal else [])
    if ground["kind"] == "grid":
        names += ["position_onehot", "position", "window", "window_typed", "map_typed"]
    listed = draw(st.permutations(["meters", *draw(st.lists(st.sampled_from(names), min_size=1, unique=True))]))
    if hides and not set(listed) & set(SEEN_FROM_AFAR):
        ground["allow_hidden_layout"] = True
    side = draw(st.sampled_from([1, 3, 5]))
    blocks: list[Any] = []
    for name in listed:
        if name in ("window", "window_typed"):
            blocks.append({"name": name, "size": side})
        elif name == "clock":
            blocks.append({"name": name, "encoding": draw(st.sampled_from(["hour", "sincos"]))})
        else:
            blocks.append(name)
    return blocks


@st.composite
def rewards(draw: Draw, names: list[str], lethal: list[str], kind: str) -> list[Document]:
    """Some strategies, each with random settings or defaults."""
    known = ["milestone", "survival", "vitality", "potential", "meter_bonus"] + (
        ["proximity"] if kind == "grid" else []
    )
    figures: dict[str, st.SearchStrategy[Document]] = {
        "milestone": st.fixed_dictionaries(
            {}, optional={"every": st.integers(1, 6), "bonus": share(0, 900), "big_every": st.integers(2, 12),
                          "big_bonus": share(0, 9000), "death": share(-9000, 0), "pay_first_step": st.booleans()}
        ),
        "survival": st.one_of(
            st.fixed_dictionaries({}, optional={"meter": st.sampled_from(lethal)}),
            st.fixed_dictionaries({"baseline": st.integers(0, 40)}),
        ),
        "vitality": st.fixed_dictionaries(
            {}, optional={"meters": st.lists(st.sampled_from(names), min_size=1, unique=True)}
        ),
        "potential": st.fixed_dictionaries({}, optional={"gamma": share(500, 1000)}),
        "meter_bonus": st.just({}),
        "proximity": st.fixed_dictionaries({}, optional={"below": share(200, 1000), "scale": share(100, 900)}),
    }  # fmt: skip
    chosen = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4, unique=True))
    return [{"name": n, "weight": draw(share(-4, 8, step=250)), **draw(figures[n])} for n in chosen]


def _stand(doc: Document, draw: Draw) -> None:
    """Give every affordance of a fixed layout a separate cell."""
    ground = doc["map"]
    if ground["kind"] == "aspatial" or ground["layout"] == "shuffled":
        return
    size = ground["size"]
    free = draw(st.permutations(range(_cells(size))))
    for place, cell in zip(doc["affordances"], free, strict=False):
        place["cell"] = []
        for n in size:
            place["cell"].append(cell % n)
            cell //= n


def _cure(doc: Document, draw: Draw) -> None:
    """Add an affordance that raises each lethal meter, always open and free."""
    for name in doc["lethal"]:
        place = draw(st.sampled_from(doc["affordances"]))
        place["each_tick"].pop(name, None)
        place["at_end"][name] = draw(share(20, 80, step=5))
        place.pop("hours", None)
        place.pop("price", None)
