"""Image compression: images made of bytes take one byte per value and are restored exactly."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from buffers import law
from buffers.scripted import generator, same, saved_and_loaded
from townlet.buffers.prioritized import PrioritySpec
from townlet.buffers.replay import ReplayBuffer
from townlet.buffers.sequence_replay import SequenceReplay
from townlet.buffers.storage import ImageCompression, VectorTransition
from townlet.interfaces.layout import BlockSpec, ObservationLayout

SCREEN: BlockSpec = ("screen", (1, 3, 4), 0.0, 1.0, "picture", (), 255)
MIXED = ObservationLayout.of(("speed", (2,), -9.0, 9.0), SCREEN, ("state", (1,), 0.0, 5.0, "index"))
UNCOMPRESSED = ObservationLayout.of(*((b.name, b.shape, b.low, b.high, b.kind) for b in MIXED))
OTHER = ObservationLayout.of(
    ("left", (1, 2, 2), -1.0, 1.0, "picture", (), 15), ("right", (1, 2, 2), 0.0, 255.0, "picture", (), 255)
)


def seen(layout: ObservationLayout, rows: int, seed: int) -> torch.Tensor:
    """Observations whose images have only values at their levels, as those of environments do."""
    chance, parts = generator(seed), []
    for block in layout:
        if block.levels:
            whole = torch.randint(block.levels + 1, (rows, block.size), generator=chance).float()
            parts.append(whole / (block.levels / (block.high - block.low)) + block.low)
        else:
            parts.append(torch.randn(rows, block.size, generator=chance))
    return torch.cat(parts, 1)


@law
@given(
    st.sampled_from((MIXED, OTHER, ObservationLayout.of(SCREEN), ObservationLayout.of(("speed", (3,), 0.0, 1.0)))),
    st.integers(0, 99),
)
def test_images_made_of_bytes_are_restored_exactly(layout: ObservationLayout, seed: int) -> None:
    compression, obs = ImageCompression(layout), seen(layout, 20, seed)
    columns = {name: torch.zeros(20, *shape, dtype=kind) for name, (shape, kind) in compression.columns("obs").items()}
    for name, values in compression.compress("obs", obs).items():
        columns[name].copy_(values)
    index = torch.randint(20, (50,), generator=generator(seed))
    assert torch.equal(compression.decompress("obs", columns, index), obs[index])


def test_values_beyond_the_range_are_clipped() -> None:
    compression = ImageCompression(ObservationLayout.of(SCREEN))
    found = compression.compress("obs", torch.tensor([[-1.0, 2.0, 0.5001] + [0.0] * 9]))["obs_bytes"]
    assert found[0, :3].tolist() == [0, 255, 128]


def test_a_replay_buffer_of_images_takes_one_byte_per_value() -> None:
    def buffer(layout: ObservationLayout, seed: int = 1) -> ReplayBuffer:
        return ReplayBuffer(40, 2, layout, 3, n_step=2, gamma=0.5, generator=generator(seed), priority=PrioritySpec())

    compressed, plain, again = buffer(MIXED), buffer(UNCOMPRESSED), buffer(MIXED, seed=9)
    yes, no = torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, dtype=torch.bool)
    for t in range(30):
        obs, following = seen(MIXED, 2, t), seen(MIXED, 2, t + 1)
        number = torch.full((2,), float(t))
        step = VectorTransition(obs, yes, number.long() % 3, number, number, following, yes, no, no, torch.zeros(2, 0))
        for each in (compressed, plain):
            each.add(step)
    again.restore(saved_and_loaded(compressed.state()))
    batch = compressed.sample(64)
    assert same(batch, plain.sample(64))
    assert same(batch, again.sample(64))
    columns = compressed._storage.columns
    assert columns["obs_bytes"].dtype == torch.uint8
    assert columns["obs_bytes"].nbytes + columns["obs"].nbytes == 40 * (12 + 3 * 4)
    assert columns["next_obs"].shape == (20, 2, 3)


def test_sequences_of_compressed_images_equal_uncompressed_ones() -> None:
    def buffer(layout: ObservationLayout) -> SequenceReplay:
        return SequenceReplay(40, 2, layout, 3, length=4, burn_in=2, gamma=0.5, generator=generator())

    compressed, plain = buffer(MIXED), buffer(UNCOMPRESSED)
    yes, no = torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, dtype=torch.bool)
    for t in range(30):
        number, ended = torch.full((2,), float(t)), torch.tensor([t % 7 == 6, False])
        seen_now = seen(MIXED, 2, t), yes, number.long() % 3, number, number
        for each in (compressed, plain):
            each.add(VectorTransition(*seen_now, seen(MIXED, 2, t + 1), yes, ended, no, torch.zeros(2, 0)))
    assert same(compressed.sample(64), plain.sample(64))
