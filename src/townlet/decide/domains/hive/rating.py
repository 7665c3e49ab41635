"""What actions are worth, number by number: compiled where Numba is there.

It stands alone in its file and is handed all that it needs, because compiled code that is kept is made anew only when
its own file changes. One action is calculated exactly as all are.
"""

from __future__ import annotations


def rate_rows(  # type: ignore[no-untyped-def]
    present, mining, protectors, hive, spawned, energy, time, actions,
    survive, disturbed, saved, distance, weights, costs, least, expected, components, rated, send,
):  # fmt: skip
    """Estimates of all actions, or where `actions` has one for each row of those, into [B, A] and [B, A, C].

    `rated` [B, A] tells what can be paid for, `send` what is worth more than `least`; of the rest nothing is written.
    """
    chunks = distance.shape[1]
    w_survival, w_disruption, w_location, w_hive, w_nearest, far, bonus, seconds = weights
    for row in range(len(time)):
        workers, many = 0, 0
        for chunk in range(chunks):
            workers += present[row, chunk] > 0 or mining[row, chunk] > 0
            many += protectors[row, chunk]
        at, guards = [0] * workers, [0] * many
        workers, many = 0, 0
        for chunk in range(chunks):
            if present[row, chunk] > 0 or mining[row, chunk] > 0:
                at[workers] = chunk
                workers += 1
            for _ in range(protectors[row, chunk]):
                guards[many] = chunk
                many += 1
        for place in range(expected.shape[1]):
            action = place if len(actions) == 0 else actions[row]
            kind, chunk = action // chunks, action % chunks
            if energy[row] < costs[kind]:
                continue
            survival, touched = 1.0, 0.0
            for guard in guards:
                survival *= survive[guard, chunk]
                touched += saved[guard, action]
            near = distance[hive[row], chunk] if workers == 0 else distance[at[0], chunk]
            for worker in at:
                near = min(near, distance[worker, chunk])
                touched += disturbed[worker, action]
            around = workers + (many if kind == 1 else 0)
            # Protectors without workers save nobody, and a share below −1 cannot be.
            disruption = 0.0 if around == 0 else max(touched / around, -1.0)
            location = -(w_hive if workers == 0 else w_nearest) * min(near / far, 1.0)
            # A clock that went back counts as no time at all.
            exploration = bonus * max(min((time[row] - spawned[row, chunk]) / seconds, 1.0), 0.0)
            rated[row, place] = True
            components[row, place, 0] = survival
            components[row, place, 1] = disruption
            components[row, place, 2] = location
            components[row, place, 3] = exploration
            worth = w_survival * survival + w_disruption * disruption
            worth += w_location * location
            expected[row, place] = worth + exploration
            send[row, place] = worth + exploration > least
