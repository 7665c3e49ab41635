"""Influence of namespaces: how much predicted rewards change if a namespace is replaced by that of another event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from townlet.decide.domain import ObservationRow
from townlet.decide.domains.rank.features import Encoded
from townlet.decide.domains.rank.networks import RewardNetwork

MAX_NAMESPACES: Final = 24  # that are rated, the most frequent ones
REPLACEMENTS: Final = 4  # other events, for each event


def namespace_influence(network: RewardNetwork, events: Sequence[Encoded]) -> dict[str, float]:
    """Mean change of the predicted advantage of an action over the others, by namespace.

    A namespace of the context is replaced by that of another event, a namespace of an action by that of the action
    before. Without the replacement, a namespace that is in every event would seem to matter, because the network
    attributes to it part of what all events have in common.
    """
    namespaces = Counter(name for event in events for name in dict.fromkeys(event.namespaces))
    others = [len(events) * part // (REPLACEMENTS + 1) for part in range(1, REPLACEMENTS + 1)]
    allowed = np.array([event.row["allowed"] for event in events])
    complete = _advantages(network, [event.row for event in events], allowed)

    def change(name: str, distance: int) -> float:
        pairs = [(event, events[(place + distance) % len(events)]) for place, event in enumerate(events)]
        replaced = _advantages(network, [replace_namespace(*pair, name) for pair in pairs], allowed)
        return float(np.abs(replaced - complete).sum() / allowed.sum())

    return {
        name: float(np.mean([change(name, distance) for distance in others]))
        for name, _ in namespaces.most_common(MAX_NAMESPACES)
    }


def replace_namespace(event: Encoded, other: Encoded, name: str) -> ObservationRow:
    """The features of an event; this namespace comes from another event, or in actions from the action before.

    The first action takes it from the last. The order of the features of an action is kept: its id is the first.
    """
    group, order, same = _find(event, name)
    other_group, other_order, donated = _find(other, name)
    donated &= other_group == 0
    moved = same & (group > 0)
    actions = int(group.max(initial=0))
    groups = np.concatenate((group[~same], other_group[donated], group[moved] % max(actions, 1) + 1))
    orders = np.concatenate((order[~same], other_order[donated], order[moved]))
    sorting = np.lexsort((orders, groups))
    row = {"bounds": np.searchsorted(groups[sorting], np.arange(len(event.row["bounds"]))).astype(np.int32)}
    for column in ("index", "value"):
        own, others = event.row[column][: len(same)], other.row[column][: len(donated)]
        row[column] = np.concatenate((own[~same], others[donated], own[moved]))[sorting]
    return row


def _find(event: Encoded, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Of each feature: its group (0: context, actions from 1), its place there, and whether it has this namespace."""
    bounds = event.row["bounds"].astype(np.int64)
    group = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    return group, np.arange(len(group)) - bounds[group], np.array(event.namespaces, dtype=object) == name


def _advantages(
    network: RewardNetwork, rows: Sequence[ObservationRow], allowed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Predicted reward [B, K] of each action that may be chosen minus their mean, 0 for the others."""
    width = max(len(row["index"]) for row in rows)
    index, value = (
        torch.from_numpy(np.array([np.pad(row[key], (0, width - len(row[key]))) for row in rows]))
        for key in ("index", "value")
    )
    bounds = torch.from_numpy(np.array([row["bounds"] for row in rows]))
    with torch.inference_mode():
        rewards = network.predict(index, value, bounds)[..., -1].double().numpy()
    mean = (rewards * allowed).sum(1, keepdims=True) / allowed.sum(1, keepdims=True)
    advantages: NDArray[np.float64] = (rewards - mean) * allowed
    return advantages
