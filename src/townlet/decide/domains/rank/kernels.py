"""Loops over hashed features, compiled where Numba is installed; importing this module loads Numba.

This file contains only kernels, which call nothing outside it. An event has the features of its context, then those of
each action; `bounds` [B, K + 2] delimits them: context 0, actions from 1. The first feature of an action is its id.
"""

from __future__ import annotations

from typing import Final

from townlet.jit import jit_if_available

# Hashes of the constants 1.
LEFT_CONSTANT: Final = 0x27D4EB2F
RIGHT_CONSTANT: Final = 0x165667B1


@jit_if_available
def left_hash(feature):  # type: ignore[no-untyped-def]
    """Hash of a feature of the context, 32 bits. Its sign, which marks numbers, does not count."""
    return (feature & 0x7FFFFFFF) * 0x9E3779B1 & 0xFFFFFFFF


@jit_if_available
def right_hash(feature):  # type: ignore[no-untyped-def]
    """Hash of a feature of an action, 32 bits."""
    return (feature & 0x7FFFFFFF) * 0x85EBCA6B & 0xFFFFFFFF


@jit_if_available
def pair_slot(left, right, mask):  # type: ignore[no-untyped-def]
    """Slot of the table for a pair of hashes."""
    mixed = (left ^ (right >> 16) ^ (right << 16)) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D >> 12) & mask


@jit_if_available
def standardize(index, value, bounds, mean, scale, limit, out):  # type: ignore[no-untyped-def]
    """Write values [B, F] into `out`, numbers (negative index) as (value − mean) · scale of their feature, ±limit."""
    mask = len(mean) - 1
    for row in range(len(index)):
        for place in range(bounds[row, -1]):
            x = value[row, place]
            if index[row, place] < 0:
                slot = index[row, place] & mask
                x = min(max((x - mean[slot]) * scale[slot], -limit), limit)
            out[row, place] = x


@jit_if_available
def observe(index, value, bounds, memory, count, mean, square):  # type: ignore[no-untyped-def]
    """Update count, mean and mean square deviation of each number; older values fade after `memory` of them."""
    mask = len(mean) - 1
    for row in range(len(index)):
        for place in range(bounds[row, -1]):
            if index[row, place] < 0:
                slot = index[row, place] & mask
                count[slot] = min(count[slot] + 1.0, memory)
                before = value[row, place] - mean[slot]
                mean[slot] += before / count[slot]
                square[slot] += (before * (value[row, place] - mean[slot]) - square[slot]) / count[slot]


@jit_if_available
def score(index, value, bounds, first, table, out):  # type: ignore[no-untyped-def]
    """Add the scores of all actions to `out` [B, K, H]: Σ over pairs (i, j) of table[hash(i, j)] · cᵢ · aⱼ.

    i is a feature of the context or a constant 1, j one of the action (from number `first` on) or a constant 1. Both
    vectors are divided by the root of their length, so that a long event learns no faster than a short one.
    """
    mask, heads = len(table) - 1, table.shape[1]
    for row in range(len(index)):
        context = bounds[row, 1]
        for action in range(bounds.shape[1] - 2):
            start, end = bounds[row, action + 1] + first, bounds[row, action + 2]
            if bounds[row, action + 1] == end:
                continue
            norm = ((context + 1.0) * (end - start + 1.0)) ** -0.5
            for i in range(-1, context):
                c = norm if i < 0 else norm * value[row, i]
                left = LEFT_CONSTANT if i < 0 else left_hash(index[row, i])
                for j in range(start - 1, end):
                    x = c if j < start else c * value[row, j]
                    slot = pair_slot(left, RIGHT_CONSTANT if j < start else right_hash(index[row, j]), mask)
                    for head in range(heads):
                        out[row, action, head] += table[slot, head] * x


@jit_if_available
def add_gradient(index, value, bounds, first, gradient, out):  # type: ignore[no-untyped-def]
    """Add the gradient of `score` with respect to its table to `out` [W, H], from that of its scores [B, K, H]."""
    mask, heads = len(out) - 1, out.shape[1]
    for row in range(len(index)):
        context = bounds[row, 1]
        for action in range(bounds.shape[1] - 2):
            start, end = bounds[row, action + 1] + first, bounds[row, action + 2]
            if bounds[row, action + 1] == end:
                continue
            used = False
            for head in range(heads):
                used = used or gradient[row, action, head] != 0.0
            if not used:
                continue
            norm = ((context + 1.0) * (end - start + 1.0)) ** -0.5
            for i in range(-1, context):
                c = norm if i < 0 else norm * value[row, i]
                left = LEFT_CONSTANT if i < 0 else left_hash(index[row, i])
                for j in range(start - 1, end):
                    x = c if j < start else c * value[row, j]
                    slot = pair_slot(left, RIGHT_CONSTANT if j < start else right_hash(index[row, j]), mask)
                    for head in range(heads):
                        out[slot, head] += gradient[row, action, head] * x


@jit_if_available
def fold(index, value, bounds, first, context, actions):  # type: ignore[no-untyped-def]
    """Add features to `context` [B, D] and `actions` [B, K, D] at their hash, with a sign that also comes from it."""
    mask = context.shape[1] - 1
    for row in range(len(index)):
        for action in range(-1, bounds.shape[1] - 2):
            start, end = bounds[row, action + 1], bounds[row, action + 2]
            if action >= 0 and start < end:
                start += first
            norm = max(end - start, 1) ** -0.5
            for place in range(start, end):
                mixed = left_hash(index[row, place])
                x = norm * value[row, place] * (1.0 - 2.0 * (mixed >> 31))
                slot = (mixed >> 15) & mask
                if action < 0:
                    context[row, slot] += x
                else:
                    actions[row, action, slot] += x
