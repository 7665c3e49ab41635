"""World documents as plain dictionaries: read, inherited and with every default filled in."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from ruamel.yaml import YAML

Document = dict[str, Any]

BY_NAME = ("meters", "modulations", "cascades", "affordances")
PRESETS = {
    "full": ["position_onehot", "meters", "affordance_here"],
    "partial": ["window", "position", "meters", "affordance_here"],
    "shuffled": ["position_onehot", "meters", "affordance_here", "map_typed"],
    "foggy": ["window_typed", "position", "meters", "affordance_here"],
}
OF_THE_MAP = {"position_onehot", "position", "window", "window_typed", "map_typed"}
REWARDS: dict[str, Document] = {
    "milestone": {
        "every": 10,
        "bonus": 0.5,
        "big_every": 100,
        "big_bonus": 5.0,
        "death": -100.0,
        "pay_first_step": False,
    },
    "survival": {"meter": None, "baseline": None},
    "vitality": {"meters": None},
    "potential": {"gamma": 0.99},
    "meter_bonus": {},
    "proximity": {"below": 0.5, "scale": 0.5},
}


@cache
def shipped_document(name: str) -> Document:
    """A shipped world after inheritance; shared, so copy it before a change."""
    text = (files("townlet") / "town" / "worlds" / f"{name}.yaml").read_text(encoding="utf-8")
    child: Document = YAML(typ="safe", pure=True).load(text) or {}
    parent, removed = child.pop("extends", None), child.pop("remove", [])
    return _inherited(shipped_document(parent), child, removed) if parent else child


def name_of(entry: Any) -> str:
    """The name by which a list entry is merged."""
    return str(entry.get("name") or f"{entry['source']}->{entry['target']}")


def _inherited(parent: Document, child: Document, removed: list[str]) -> Document:
    kept = dict(parent)
    for key in BY_NAME:
        kept[key] = [e for e in parent.get(key, []) if name_of(e) not in removed]
    lists = {key: value for key, value in child.items() if key in BY_NAME}
    out = _laid_over(kept, {key: value for key, value in child.items() if key not in BY_NAME})
    for key, entries in lists.items():
        named = {name_of(e): e for e in out[key]}
        for entry in entries:
            named[name_of(entry)] = _laid_over(named.get(name_of(entry), {}), entry)
        out[key] = list(named.values())
    return out


def _laid_over(below: Document, above: Document) -> Document:
    """Mappings merge key by key, anything else is replaced."""
    out = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _laid_over(out[key], value) if both else value
    return out


def filled(doc: Document) -> Document:
    """The document with all defaults filled in."""
    out: Document = {"max_steps": 500, "currency": None, "mask_unaffordable": False, "observation": "full"} | doc
    ground = {"kind": "grid", "size": [8, 8], "boundary": "clamp", "layout": "fixed", "start": "random"}
    out["map"] = ground | doc.get("map", {})
    out["clock"] = {"temporal": False, "day": 24, "start": 0} | doc.get("clock", {})
    out["meters"] = [_meter(m) for m in doc["meters"]]
    out["modulations"] = list(doc.get("modulations", []))
    out["cascades"] = [{"threshold": 0.3} | c for c in doc.get("cascades", [])]
    plain: Document = {"ticks": 1, "price": 0.0, "hours": None, "each_tick": {}, "at_end": {}, "cell": None}
    out["affordances"] = [plain | a for a in doc["affordances"]]
    out["rewards"] = [_reward(r) for r in doc.get("rewards", ["milestone"])]
    out["observation"] = _blocks(out)
    return out


def _meter(meter: Document) -> Document:
    figures: Document = {"start": 1.0, "decay": 0.0, "move": 0.0, "wait": 0.0} | meter
    pay = {"above": 0.8, "reward": 0.0, "below": 0.2, "penalty": 0.0}
    figures["bonus"] = pay | (meter.get("bonus") or {})
    return figures


def _reward(reward: Any) -> Document:
    given: Document = {"name": reward} if isinstance(reward, str) else reward
    return {"weight": 1.0} | REWARDS[given["name"]] | given


def _blocks(doc: Document) -> list[Document]:
    wanted = doc["observation"]
    if isinstance(wanted, str):
        wanted = PRESETS[wanted] + (["clock", "progress"] if doc["clock"]["temporal"] else [])
        if doc["map"]["kind"] == "aspatial":
            wanted = [b for b in wanted if b not in OF_THE_MAP]
    listed = [{"name": b} if isinstance(b, str) else b for b in wanted]
    return [{"name": b["name"], "size": b.get("size") or 5, "encoding": b.get("encoding") or "hour"} for b in listed]
