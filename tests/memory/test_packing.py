"""Pictures that came from bytes take a byte for each value and come back as they were."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from memory import law
from memory.script import generator, same, through_a_file
from townlet.contract.layout import Layout
from townlet.memory.packing import Packing
from townlet.memory.priority import PrioritySpec
from townlet.memory.ring import Ring
from townlet.memory.sequence import Sequences
from townlet.memory.storage import Transition

SCREEN = ("screen", (1, 3, 4), 0.0, 1.0, "picture", (), 255)
MIXED = Layout.of(("speed", (2,), -9.0, 9.0), SCREEN, ("state", (1,), 0.0, 5.0, "index"))
OTHER = Layout.of(
    ("left", (1, 2, 2), -1.0, 1.0, "picture", (), 15), ("right", (1, 2, 2), 0.0, 255.0, "picture", (), 255)
)


def seen(layout: Layout, rows: int, seed: int) -> torch.Tensor:
    """Observations whose pictures are at their levels, as an environment makes them."""
    chance, parts = generator(seed), []
    for block in layout:
        if block.levels:
            whole = torch.randint(block.levels + 1, (rows, block.size), generator=chance).float()
            parts.append(whole / (block.levels / (block.high - block.low)) + block.low)
        else:
            parts.append(torch.randn(rows, block.size, generator=chance))
    return torch.cat(parts, 1)


@law
@given(st.sampled_from((MIXED, OTHER, Layout.of(SCREEN), Layout.of(("speed", (3,), 0.0, 1.0)))), st.integers(0, 99))
def test_what_is_packed_comes_back_to_the_bit(layout: Layout, seed: int) -> None:
    packing, obs = Packing(layout), seen(layout, 20, seed)
    columns = {name: torch.zeros(20, *shape, dtype=kind) for name, (shape, kind) in packing.columns("obs").items()}
    for name, values in packing.apart("obs", obs).items():
        columns[name].copy_(values)
    index = torch.randint(20, (50,), generator=generator(seed))
    assert torch.equal(packing.together("obs", columns, index), obs[index])


def test_values_beyond_the_range_are_cut_and_not_wrapped() -> None:
    packing = Packing(Layout.of(SCREEN))
    found = packing.apart("obs", torch.tensor([[-1.0, 2.0, 0.5001] + [0.0] * 9]))["obs_bytes"]
    assert found[0, :3].tolist() == [0, 255, 128]


def test_a_ring_of_pictures_takes_a_byte_for_each_value() -> None:
    def ring(layout: Layout, seed: int = 1) -> Ring:
        more = {"generator": generator(seed), "priority": PrioritySpec(), "packing": Packing(layout)}
        return Ring(40, 2, layout.size, 3, n_step=2, gamma=0.5, **more)  # type: ignore[arg-type]

    plain = Layout.of(*((b.name, b.shape, b.low, b.high, b.kind) for b in MIXED))
    packed, free, again = ring(MIXED), ring(plain), ring(MIXED, seed=9)
    yes, no = torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, dtype=torch.bool)
    for t in range(30):
        obs, following = seen(MIXED, 2, t), seen(MIXED, 2, t + 1)
        number = torch.full((2,), float(t))
        step = Transition(obs, yes, number.long() % 3, number, number, following, yes, no, no, torch.zeros(2, 0))
        for each in (packed, free):
            each.add(step)
    again.restore(through_a_file(packed.state()))
    batch = packed.sample(64)
    assert same(batch, free.sample(64))
    assert same(batch, again.sample(64))
    columns = packed._storage.columns
    assert columns["obs_bytes"].dtype == torch.uint8
    assert columns["obs_bytes"].nbytes + columns["obs"].nbytes == 40 * (12 + 3 * 4)
    assert columns["next_obs"].shape == (20, 2, 3)


def test_windows_of_pictures_are_those_of_numbers() -> None:
    def sequences(packing: Packing | None) -> Sequences:
        return Sequences(40, 2, MIXED.size, 3, length=4, burn_in=2, gamma=0.5, generator=generator(), packing=packing)

    packed, free = sequences(Packing(MIXED)), sequences(None)
    yes, no = torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, dtype=torch.bool)
    for t in range(30):
        number, ended = torch.full((2,), float(t)), torch.tensor([t % 7 == 6, False])
        seen_now = seen(MIXED, 2, t), yes, number.long() % 3, number, number
        for each in (packed, free):
            each.add(Transition(*seen_now, seen(MIXED, 2, t + 1), yes, ended, no, torch.zeros(2, 0)))
    assert same(packed.sample(64), free.sample(64))
