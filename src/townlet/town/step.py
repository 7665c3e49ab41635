"""One step of one row, as a table of contents of the rule book.

Rules 11 and 12 (reset of ended rows, observation and mask) write memory, so each engine frames this
function with its own; see `cpu.kernel` and `tensor`. Run `python -m townlet.town.step` to watch one life.
"""

from __future__ import annotations

from typing import Any

from townlet.town import rules
from townlet.town.ops import rule
from townlet.town.rewards import hope, reward


@rule
def live(
    s: Any, action: Any, kind_at: Any, cell_of: Any, town: Any, mix: Any, components: Any, row: Any, w: Any
) -> tuple[Any, Any, Any]:
    """Rules 1–10 for one row: (reward, terminated, truncated)."""
    before = hope(s, w)
    rules.move(s, action, w)  # 1
    rules.pay_for_action(s, action, w)  # 2
    rules.interact(s, action, kind_at, town, w)  # 3
    rules.decay(s, w)  # 4
    rules.modulate(s, w)  # 5
    rules.cascade(s, w)  # 6
    dead = rules.die(s, w)  # 7
    rules.grow_older(s, w)  # 8
    late = rules.run_out_of_time(s, dead, w)  # 9
    gain = reward(s, before, dead, late, cell_of, town, mix, components, row, w)  # 10
    return gain, dead, late


def main() -> None:
    """One life of an agent that only walks, told at every tenth step."""
    import numpy as np

    from townlet.town.engines.engine import make_engine
    from townlet.town.world.load import load

    engine = make_engine(load("town"), 1, autoreset=False)
    engine.reset(0)
    print("age", *engine.world.meters, sep="\t")
    while not engine.terminated[0]:
        engine.step(np.zeros(1, np.int64))
        if (age := int(engine.peek()["age"][0])) % 10 == 0:
            print(age, *(f"{value:.3f}" for value in engine.peek()["meters"][0]), sep="\t")
    print(engine.scene(0).ended)


if __name__ == "__main__":
    main()
