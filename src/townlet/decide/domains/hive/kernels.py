"""Loops of the hive, compiled where Numba is installed.

This file contains only kernels, which call nothing outside it: cached machine code is recompiled only when its own
file changes.
"""

from __future__ import annotations

from math import exp, floor


def rate_actions(  # type: ignore[no-untyped-def]
    present, mining, protectors, hive, spawned, energy, time, actions, survival_table, worker_table, protector_table,
    distance, weights, costs, threshold, expected, components, rated, send,
):  # fmt: skip
    """Rate all actions, or one per row if `actions` is not empty, into `expected` [B, A] and `components` [B, A, C].

    A is the number of rated actions, C of components; the tables are those of `ReachTables`. `rated` [B, A] marks
    affordable actions, `send` [B, A] those whose estimate exceeds `threshold`; nothing is written for the others.
    A single action is computed exactly like all of them.
    """
    chunks = distance.shape[1]
    w_survival, w_disruption, w_location, w_hive, w_nearest, far, bonus, seconds = weights
    for row in range(len(time)):
        n_worker_chunks, n_protectors = 0, 0
        for chunk in range(chunks):
            n_worker_chunks += present[row, chunk] > 0 or mining[row, chunk] > 0
            n_protectors += protectors[row, chunk]
        worker_chunks, protector_chunks = [0] * n_worker_chunks, [0] * n_protectors
        n_worker_chunks, n_protectors = 0, 0
        for chunk in range(chunks):
            if present[row, chunk] > 0 or mining[row, chunk] > 0:
                worker_chunks[n_worker_chunks] = chunk
                n_worker_chunks += 1
            for _ in range(protectors[row, chunk]):
                protector_chunks[n_protectors] = chunk
                n_protectors += 1
        for column in range(expected.shape[1]):
            action = column if len(actions) == 0 else actions[row]
            type_index, chunk = action // chunks, action % chunks
            if energy[row] < costs[type_index]:
                continue
            survival, affected = 1.0, 0.0
            for protector_chunk in protector_chunks:
                survival *= survival_table[protector_chunk, chunk]
                affected += protector_table[protector_chunk, action]
            near = distance[hive[row], chunk] if n_worker_chunks == 0 else distance[worker_chunks[0], chunk]
            for worker_chunk in worker_chunks:
                near = min(near, distance[worker_chunk, chunk])
                affected += worker_table[worker_chunk, action]
            targets = n_worker_chunks + (n_protectors if type_index == 1 else 0)
            # Disturbed units minus shielding protectors, relative to the units that can be disturbed; at least −1.
            disruption = 0.0 if targets == 0 else max(affected / targets, -1.0)
            location = -(w_hive if n_worker_chunks == 0 else w_nearest) * min(near / far, 1.0)
            # A clock that was set back counts as no elapsed time.
            exploration = bonus * max(min((time[row] - spawned[row, chunk]) / seconds, 1.0), 0.0)
            rated[row, column] = True
            components[row, column, 0] = survival
            components[row, column, 1] = disruption
            components[row, column, 2] = location
            components[row, column, 3] = exploration
            estimate = w_survival * survival + w_disruption * disruption
            estimate += w_location * location
            expected[row, column] = estimate + exploration
            send[row, column] = estimate + exploration > threshold


def summarize(  # type: ignore[no-untyped-def]
    present, mining, protectors, energy_start, energy_end, combat_start, combat_end,
    queen_energy, player_before, player_after, crowds, costs, saturation, features,
):  # fmt: skip
    """Write features [B, 28]: five for each of the `crowds` chunks with the most workers, then three about energy."""
    rows, chunks = present.shape
    for row in range(rows):
        n_workers, n_protectors = 0, 0
        for chunk in range(chunks):
            n_workers += int(present[row, chunk]) + int(mining[row, chunk])
            n_protectors += int(protectors[row, chunk])
        last_count, last_chunk = 1 << 16, -1  # workers and chunk of the previous crowd
        for crowd in range(crowds):
            most, top = 0, -1
            for chunk in range(chunks):  # the next largest, ties to the lowest chunk
                here = int(present[row, chunk]) + int(mining[row, chunk])
                if here > most and (here < last_count or (here == last_count and chunk > last_chunk)):
                    most, top = here, chunk
            if top < 0:
                break
            last_count, last_chunk = most, top
            first = 5 * crowd
            features[row, first] = top / (chunks - 1)
            features[row, first + 1] = most / n_workers
            features[row, first + 2] = int(protectors[row, top]) / max(n_protectors, 1)
            start, end = float(energy_start[row, top]), float(energy_end[row, top])  # bytes are unsigned
            features[row, first + 3] = (end - start) / max(start, end, 1.0)
            start, end = float(combat_start[row, top]), float(combat_end[row, top])
            features[row, first + 4] = (end - start) / max(start, end, 1.0)
        for kind in range(2):
            features[row, 5 * crowds + kind] = min(1.0, floor(queen_energy[row] / costs[kind]) / saturation[kind])
        start, end = player_before[row], player_after[row]
        features[row, 5 * crowds + 2] = (end - start) / max(start, end) if max(start, end) > 0.0 else 0.0


def reward(  # type: ignore[no-untyped-def]
    before_mining, after_mining, before_protectors, after_protectors, before_energy, after_energy,
    weights, cleared_bonus, protector_bonus, idle_penalty, negligible, rewards,
):  # fmt: skip
    """Write rewards [B] in [−1, 1]: weighted growth rates, bonuses, and a penalty if nothing changed."""
    rows, chunks = before_mining.shape
    for row in range(rows):
        mining_before, mining_after, protectors_before, protectors_after, cleared = 0.0, 0.0, 0.0, 0.0, 0
        for chunk in range(chunks):
            mining_before += before_mining[row, chunk]
            mining_after += after_mining[row, chunk]
            protectors_before += before_protectors[row, chunk]
            protectors_after += after_protectors[row, chunk]
            cleared += before_mining[row, chunk] > 0 and after_mining[row, chunk] == 0
        total, idle = 0.0, True
        energy = (before_energy[row], after_energy[row])
        changes = ((mining_before, mining_after), (protectors_before, protectors_after), energy)
        for index in range(3):
            before, after = changes[index]
            growth = (after - before) / max(before, after) if max(before, after) > 0.0 else 0.0
            idle = idle and abs(growth) < negligible
            total += weights[index] * growth
        total += cleared_bonus * cleared
        total += protector_bonus * max(protectors_before - protectors_after, 0.0)
        if idle:
            total += idle_penalty
        rewards[row] = min(max(total, -1.0), 1.0)


def factored_probabilities(  # type: ignore[no-untyped-def]
    features, w_first, b_first, w_second, b_second, w_third, b_third, w_chunk, b_chunk, w_combat, b_combat, probs,
):  # fmt: skip
    """Forward pass of `FactoredPolicy`, features [B, 28] → probabilities [B, 800].

    The 15,000 multiplications per row take less time than a call to torch, if there are only a few rows.
    """
    chunks = len(b_chunk)
    first, second, third = [0.0] * len(b_first), [0.0] * len(b_second), [0.0] * len(b_third)
    for row in range(len(features)):
        for i in range(len(first)):
            total = float(b_first[i])
            for k in range(features.shape[1]):
                total += w_first[i, k] * features[row, k]
            first[i] = max(total, 0.0)
        for i in range(len(second)):
            total = float(b_second[i])
            for k in range(len(first)):
                total += w_second[i, k] * first[k]
            second[i] = max(total, 0.0)
        for i in range(len(third)):
            total = float(b_third[i])
            for k in range(len(second)):
                total += w_third[i, k] * second[k]
            third[i] = max(total, 0.0)
        combat = float(b_combat[0])
        for k in range(len(second)):
            combat += w_combat[0, k] * second[k]
        p_combat = 1.0 / (1.0 + exp(-combat)) if combat > 0.0 else exp(combat) / (1.0 + exp(combat))
        top = -1e300
        for chunk in range(chunks):
            total = float(b_chunk[chunk])
            for k in range(len(third)):
                total += w_chunk[chunk, k] * third[k]
            probs[row, chunk] = total
            top = max(top, total)
        normalizer = 0.0
        for chunk in range(chunks):
            probs[row, chunk] = exp(probs[row, chunk] - top)
            normalizer += probs[row, chunk]
        for chunk in range(chunks):
            p_chunk = probs[row, chunk] / normalizer
            probs[row, chunk] = p_chunk * (1.0 - p_combat)
            probs[row, chunks + chunk] = p_chunk * p_combat
