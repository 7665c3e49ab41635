"""What is counted of observations, number by number: compiled where Numba is there, and alone in its file for that."""

from __future__ import annotations


def describe_crowds(  # type: ignore[no-untyped-def]
    present, mining, protectors, energy_start, energy_end, combat_start, combat_end, features, crowds,
):  # fmt: skip
    """Five numbers of each of the largest crowds, into `features` [B, 28]; `crowds` is how many are described."""
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


def compare(before_mining, after_mining, before_guards, after_guards, counts):  # type: ignore[no-untyped-def]
    """Into `counts` [B, 5]: who mined and mines, protectors before and after, and chunks that are no longer mined."""
    rows, chunks = before_mining.shape
    for row in range(rows):
        for chunk in range(chunks):
            counts[row, 0] += before_mining[row, chunk]
            counts[row, 1] += after_mining[row, chunk]
            counts[row, 2] += before_guards[row, chunk]
            counts[row, 3] += after_guards[row, chunk]
            counts[row, 4] += before_mining[row, chunk] > 0 and after_mining[row, chunk] == 0
