"""The plain network for a few observations, number by number: compiled, and alone in its file for that.

Its 15,000 products take less time than torch needs to be asked for them.
"""

from __future__ import annotations

from math import exp


def plain_chances(  # type: ignore[no-untyped-def]
    features, w_first, b_first, w_second, b_second, w_third, b_third, w_chunk, b_chunk, w_combat, b_combat, chances,
):  # fmt: skip
    """Probabilities of all actions into [B, 800], from features [B, 28]."""
    chunks = len(b_chunk)
    first, second, third = [0.0] * len(b_first), [0.0] * len(b_second), [0.0] * len(b_third)
    for row in range(len(features)):
        for place in range(len(first)):
            total = float(b_first[place])
            for k in range(features.shape[1]):
                total += w_first[place, k] * features[row, k]
            first[place] = max(total, 0.0)
        for place in range(len(second)):
            total = float(b_second[place])
            for k in range(len(first)):
                total += w_second[place, k] * first[k]
            second[place] = max(total, 0.0)
        for place in range(len(third)):
            total = float(b_third[place])
            for k in range(len(second)):
                total += w_third[place, k] * second[k]
            third[place] = max(total, 0.0)
        combat = float(b_combat[0])
        for k in range(len(second)):
            combat += w_combat[0, k] * second[k]
        share = 1.0 / (1.0 + exp(-combat)) if combat > 0.0 else exp(combat) / (1.0 + exp(combat))
        top = -1e300
        for chunk in range(chunks):
            total = float(b_chunk[chunk])
            for k in range(len(third)):
                total += w_chunk[chunk, k] * third[k]
            chances[row, chunk] = total
            top = max(top, total)
        whole = 0.0
        for chunk in range(chunks):
            chances[row, chunk] = exp(chances[row, chunk] - top)
            whole += chances[row, chunk]
        for chunk in range(chunks):
            chance = chances[row, chunk] / whole
            chances[row, chunk] = chance * (1.0 - share)
            chances[row, chunks + chunk] = chance * share
