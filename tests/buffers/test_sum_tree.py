"""Sum tree: compared with a plain list."""

from __future__ import annotations

from itertools import accumulate

import torch
from hypothesis import given
from hypothesis import strategies as st

from buffers import law
from buffers.scripted import generator
from townlet.buffers.prioritized import SumTree

# One, two and three levels, and their edges.
sizes = st.sampled_from((1, 2, 63, 64, 65, 200, 4096, 4097, 5000))


def doubles(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@law
@given(sizes, st.data())
def test_sum_tree_matches_a_list(size: int, data: st.DataObject) -> None:
    """Whole weights, so that every sum is exact."""
    tree, plain = SumTree(size), [0.0] * size
    place, weight = st.integers(0, size - 1), st.integers(0, 9).map(float)
    for _ in range(data.draw(st.integers(1, 4))):
        pairs = data.draw(st.lists(st.tuples(place, weight), min_size=1, max_size=20))
        index = torch.tensor([i for i, _ in pairs])
        tree.set(index, doubles([w for _, w in pairs]))
        for i in {i for i, _ in pairs}:
            plain[i] = max(w for j, w in pairs if j == i)  # for a repeated index the largest is kept
        assert tree.weights(index).tolist() == [plain[i] for i in index.tolist()]
        start = data.draw(place)
        stop, value = data.draw(st.integers(start + 1, size)), data.draw(weight)
        tree.fill(start, stop, torch.tensor(value, dtype=torch.float64))
        plain[start:stop] = [value] * (stop - start)
    total = sum(plain)
    assert tree.total == total
    if total:
        ends = list(accumulate(plain))
        prefixes = data.draw(st.lists(st.floats(0, total, exclude_max=True), min_size=1, max_size=20))
        expected = [next(i for i, end in enumerate(ends) if end > prefix) for prefix in prefixes]
        assert tree.find(doubles(prefixes)).tolist() == expected


def test_index_without_weight_is_never_found() -> None:
    chance = generator(3)
    for size in (50, 3000, 70_000):
        tree = SumTree(size)
        some = torch.randperm(size, generator=chance)[: size // 3]
        weights = torch.rand(len(some), dtype=torch.float64, generator=chance).pow(40)  # many orders of magnitude
        tree.set(some, weights)
        around = torch.linspace(0, 1, 4001, dtype=torch.float64) * tree.total
        ends = tree.weights(torch.arange(size)).cumsum(0)
        prefixes = torch.cat([around, ends[ends < tree.total], tree.total.nextafter(doubles([0.0]))])
        found = tree.find(prefixes)
        assert (tree.weights(found) > 0).all()
        slack = 1e-13 * tree.total  # the cumulative sums are rounded too
        assert (ends[found] >= prefixes - slack).all()
        assert (ends[found] - tree.weights(found) <= prefixes + slack).all()


def test_rounding_errors_do_not_accumulate() -> None:
    """A sum corrected by differences would drift; this one is recomputed from its parts."""
    chance, tree = generator(4), SumTree(1000)
    for _ in range(500):
        weights = torch.rand(20, dtype=torch.float64, generator=chance) * 1e12
        tree.set(torch.randint(1000, (20,), generator=chance), weights)
    tree.fill(0, 1000, torch.tensor(0.1, dtype=torch.float64))
    assert abs(tree.total.item() - 100.0) < 1e-12
    tree.fill(0, 1000, torch.tensor(0.0, dtype=torch.float64))
    assert tree.total == 0
