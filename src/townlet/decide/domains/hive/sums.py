"""What is counted of observations, number by number: compiled where Numba is there, and alone in its file for that."""

from __future__ import annotations

from math import floor


def describe(  # type: ignore[no-untyped-def]
    present, mining, protectors, energy_start, energy_end, combat_start, combat_end,
    purse, player_before, player_now, crowds, costs, most_of, features,
):  # fmt: skip
    """Five numbers of each of the largest crowds, as many as are described, and three of the purse; into [B, 28]."""
    rows, chunks = present.shape
    for row in range(rows):
        workers, guards = 0, 0
        for chunk in range(chunks):
            workers += int(present[row, chunk]) + int(mining[row, chunk])
            guards += int(protectors[row, chunk])
        last_count, last_chunk = 1 << 16, -1  # of the crowd that was described before
        for crowd in range(crowds):
            most, top = 0, -1
            for chunk in range(chunks):  # the next largest, ties to the lowest chunk
                here = int(present[row, chunk]) + int(mining[row, chunk])
                if here > most and (here < last_count or (here == last_count and chunk > last_chunk)):
                    most, top = here, chunk
            if top < 0:
                break
            last_count, last_chunk = most, top
            place = 5 * crowd
            features[row, place] = top / (chunks - 1)
            features[row, place + 1] = most / workers
            features[row, place + 2] = int(protectors[row, top]) / max(guards, 1)
            start, end = float(energy_start[row, top]), float(energy_end[row, top])  # bytes know no sign
            features[row, place + 3] = (end - start) / max(start, end, 1.0)
            start, end = float(combat_start[row, top]), float(combat_end[row, top])
            features[row, place + 4] = (end - start) / max(start, end, 1.0)
        for kind in range(2):
            features[row, 5 * crowds + kind] = min(1.0, floor(purse[row] / costs[kind]) / most_of[kind])
        start, end = player_before[row], player_now[row]
        features[row, 5 * crowds + 2] = (end - start) / max(start, end) if max(start, end) > 0.0 else 0.0


def reward(  # type: ignore[no-untyped-def]
    before_mining, after_mining, before_guards, after_guards, before_energy, after_energy,
    weights, per_chunk, per_guard, per_nothing, small, rewards,
):  # fmt: skip
    """What came of decisions, into [B] in [−1, 1]: what grew with its weights, then what was won, and what was not."""
    rows, chunks = before_mining.shape
    for row in range(rows):
        mined, mining, guards, left, cleared = 0.0, 0.0, 0.0, 0.0, 0
        for chunk in range(chunks):
            mined += before_mining[row, chunk]
            mining += after_mining[row, chunk]
            guards += before_guards[row, chunk]
            left += after_guards[row, chunk]
            cleared += before_mining[row, chunk] > 0 and after_mining[row, chunk] == 0
        total, quiet = 0.0, True
        changes = ((mined, mining), (guards, left), (before_energy[row], after_energy[row]))
        for kind in range(3):
            before, after = changes[kind]
            grown = (after - before) / max(before, after) if max(before, after) > 0.0 else 0.0
            quiet = quiet and abs(grown) < small
            total += weights[kind] * grown
        total += per_chunk * cleared
        total += per_guard * max(guards - left, 0.0)
        if quiet:
            total += per_nothing
        rewards[row] = min(max(total, -1.0), 1.0)
