"""One action of each line of probabilities, and how open the choice was: compiled, and alone in its file for that."""

from __future__ import annotations

from math import log


def draw_actions(chances, spots, actions, entropies):  # type: ignore[no-untyped-def]
    """Actions [B] by probabilities [B, K] and places in [0, 1) [B], never one of probability 0; and entropies [B].

    An entropy is a share of what it would be if all that can be chosen were alike.
    """
    lines, kinds = chances.shape
    for line in range(lines):
        whole, total, possible = 0.0, 0.0, 0
        for kind in range(kinds):
            chance = chances[line, kind]
            whole += chance
            if chance > 0.0:
                total -= chance * log(chance)
                possible += 1
        spot, upto, found = spots[line] * whole, 0.0, 0
        for kind in range(kinds):
            upto += chances[line, kind]
            if chances[line, kind] > 0.0:
                found = kind  # the last that is possible, where sums end a little below the whole
                if upto > spot:
                    break
        actions[line] = found
        entropies[line] = max(total / log(max(possible, 2)), 0.0)
