"""Replay buffer: retention, sampling, priorities, and consistency under concurrent use."""

from __future__ import annotations

import threading
import time
from collections import deque
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from townlet.decide.buffer import ExperienceBatch, ExperienceBuffer
from townlet.decide.domain import ColumnSpec
from townlet.errors import TownletError
from townlet.runs.serialization import flatten, unflatten

COLUMNS = {"seen": ColumnSpec((3,), "float32"), "grid": ColumnSpec((2, 2), "int64"), "count": ColumnSpec((), "uint8")}
law = settings(deadline=None, derandomize=True, max_examples=60, database=None)


def row(number: int) -> dict[str, NDArray[Any]]:
    """An observation whose columns all contain its number."""
    return {
        "seen": np.full(3, number, np.float32),
        "grid": np.full((2, 2), number, np.int64),
        "count": np.asarray(number % 256, np.uint8),
    }


def facts(number: int, send: bool = True, known: bool = True, outcome: float | None = None) -> dict[str, float]:
    return {
        "number": number,
        "action": number,
        "time": float(number),
        "propensity": 1 / (number + 1),
        "confidence": 0.5,
        "send": send,
        "expected": number * 0.5,
        "outcome": float(number) if outcome is None else outcome,
        "has_outcome": known,
        "version": number,
        "gate": number,
    }


def filled(capacity: int, count: int, start: int = 0, **more: Any) -> ExperienceBuffer:
    buffer = ExperienceBuffer(capacity, COLUMNS)
    for number in range(start, start + count):
        buffer.add(row(number), **facts(number, **more))
    return buffer


def assert_whole(sample: ExperienceBatch) -> None:
    """Check that every row belongs to one experience."""
    for name in ("action", "time", "version", "gate", "outcome"):
        assert (getattr(sample, name) == sample.number).all()
    assert (sample.rows["seen"] == sample.number[:, None]).all()
    assert (sample.rows["grid"] == sample.number[:, None, None]).all()
    assert (sample.rows["count"] == sample.number % 256).all()
    assert (sample.propensity == 1 / (sample.number + 1)).all()


def numbers_of(sample: ExperienceBatch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return sample.slots, sample.number


def fresh(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@law
@given(st.integers(1, 9), st.lists(st.integers(0, 12), max_size=8))
def test_newest_experiences_are_kept_in_order(capacity: int, groups: list[int]) -> None:
    buffer, wanted, number = ExperienceBuffer(capacity, COLUMNS), deque[int](maxlen=capacity), 0
    for size in groups:
        numbers = list(range(number, number + size))
        number += size
        wanted.extend(numbers)
        for one in numbers:
            buffer.add(row(one), **facts(one))
        kept = buffer.newest(10**9)
        assert kept.number.tolist() == list(wanted)
        assert len(buffer) == len(kept) == len(wanted)
        assert_whole(kept)


@law
@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from([-1.0, 0.0, 1.0])), max_size=40),
    st.integers(1, 12),
    st.integers(1, 12),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_only_eligible_experiences_are_sampled(
    made: list[tuple[bool, bool, float]],
    batch: int,
    min_batch_size: int,
    waits: bool,
    stratified: bool,
    prioritized: bool,
) -> None:
    buffer = ExperienceBuffer(30, COLUMNS)
    for number, (send, known, outcome) in enumerate(made):
        buffer.add(row(number), **facts(number, send, known, outcome))
    kept = list(enumerate(made))[-30:]
    may = {number for number, (send, known, _) in kept if known or (waits and not send)}
    good = {number for number, (send, _, outcome) in kept if number in may and send and outcome > 0}
    sample = buffer.sample(
        batch, fresh(), waits, min_batch_size=min_batch_size, stratified=stratified, prioritized=prioritized
    )
    if len(may) < min(batch, min_batch_size):
        assert sample is None
        return
    assert sample is not None
    drawn = sample.number.tolist()
    assert len(drawn) == len(set(drawn)) == len(sample) == min(batch, len(may))
    assert set(drawn) <= may
    assert (sample.weight == 1).all()  # all errors are still equal
    if stratified:
        half = len(drawn) // 2
        wanted = min(len(good), max(half, len(drawn) - len(may - good)))
        assert len(good & set(drawn)) == wanted


def test_sample_is_none_without_eligible_experiences() -> None:
    assert ExperienceBuffer(5, COLUMNS).sample(4, fresh(), min_batch_size=0) is None
    assert filled(5, 5, known=False).sample(4, fresh(), True) is None
    assert filled(5, 5, known=False, send=False).sample(4, fresh(), False) is None
    assert filled(5, 5, known=False, send=False).sample(4, fresh(), True) is not None


@pytest.mark.parametrize("prioritized", [False, True])
def test_new_experiences_are_sampled_uniformly(prioritized: bool) -> None:
    buffer, generator = filled(50, 80), fresh(1)
    counts = np.zeros(80)
    for _ in range(4000):
        sample = buffer.sample(5, generator, prioritized=prioritized)
        assert sample is not None
        counts[sample.number] += 1
    assert (counts[:30] == 0).all()
    # 400 each are expected, and their spread is √(4000 · .1 · .9) ≈ 19.
    assert np.abs(counts[30:] - 400).max() < 5 * 19
    assert counts[30:].std() == pytest.approx(19, rel=0.4)


def test_large_errors_are_sampled_more_often_with_smaller_weights() -> None:
    buffer, generator = ExperienceBuffer(10, COLUMNS, alpha=1.0, beta=1.0), fresh(2)
    for number in range(10):
        buffer.add(row(number), **facts(number))
    buffer.update_priorities(*numbers_of(buffer.newest(10**9)), np.where(np.arange(10) < 5, -3.0, 1.0))
    counts = np.zeros(10)
    for _ in range(6000):
        sample = buffer.sample(1, generator, prioritized=True)
        assert sample is not None
        counts[sample.number] += 1
    assert counts[:5].sum() / counts.sum() == pytest.approx(0.75, abs=0.03)
    both = buffer.sample(10, generator, prioritized=True)
    assert both is not None
    assert both.weight == pytest.approx(np.where(both.number < 5, 1 / 3, 1.0), rel=1e-4)


def test_non_finite_errors_are_ignored() -> None:
    buffer = filled(10, 10)
    buffer.update_priorities(*numbers_of(buffer.newest(10**9)), [np.nan, np.inf, -np.inf, *[1.0] * 7])
    sample = buffer.sample(10, fresh(), prioritized=True)
    assert sample is not None
    assert sorted(sample.number) == list(range(10))
    assert np.isfinite(sample.weight).all()


def test_errors_of_overwritten_experiences_are_ignored() -> None:
    buffer = ExperienceBuffer(4, COLUMNS, beta=1.0)
    for number in range(4):
        buffer.add(row(number), **facts(number))
    old = buffer.newest(10**9)
    for number in (4, 5):  # in the slots of 0 and 1, as likely as those with an error of 1
        buffer.add(row(number), **facts(number))
    buffer.update_priorities(*numbers_of(old), [1e9, 1e9, 1.0, 1.0])
    buffer.add(row(6), **facts(6))  # in the slot of 2, with the highest priority so far
    sample = buffer.sample(4, fresh(), prioritized=True)
    assert sample is not None
    assert set(sample.number) == {3, 4, 5, 6}
    assert sample.weight == pytest.approx(np.ones(4), rel=1e-4)


@pytest.mark.parametrize("more", [{}, {"stratified": True}, {"prioritized": True}])
def test_sampling_is_deterministic(more: dict[str, bool]) -> None:
    first, again = filled(20, 33), filled(20, 33)
    for seed in range(5):
        a, b = (buffer.sample(7, fresh(seed), **more) for buffer in (first, again))
        assert a is not None
        assert b is not None
        assert a.number.tolist() == b.number.tolist()
        for buffer, sample in ((first, a), (again, b)):
            buffer.update_priorities(*numbers_of(sample), sample.number * 0.1)


def test_samples_are_copies() -> None:
    buffer = filled(8, 8)
    sample = buffer.sample(8, fresh())
    assert sample is not None
    for number in range(100, 120):
        buffer.add(row(number), **facts(number))
    assert sorted(sample.number) == list(range(8))
    assert_whole(sample)


@pytest.mark.parametrize("count", [0, 5, 10, 27])
def test_restored_buffer_continues_identically(count: int) -> None:
    buffer, other = filled(10, count), filled(10, 13, start=500)
    if count:
        buffer.update_priorities(*numbers_of(buffer.newest(10**9)), np.arange(len(buffer)) * 0.3)
    other.restore(unflatten(flatten(buffer.state())))
    for number in range(100, 104):
        for one in (buffer, other):
            one.add(row(number), **facts(number))
        draws = [one.sample(6, fresh(number), prioritized=True) for one in (buffer, other)]
        assert draws[0] is not None
        assert draws[1] is not None
        assert draws[0].number.tolist() == draws[1].number.tolist()
    assert other.newest(10**9).number.tolist() == buffer.newest(10**9).number.tolist()
    assert_whole(other.newest(10**9))


def test_incompatible_state_is_refused() -> None:
    state = filled(10, 4).state()
    with pytest.raises(TownletError, match="has a capacity of 10, not 11"):
        ExperienceBuffer(11, COLUMNS).restore(state)
    with pytest.raises(TownletError, match="does not hold seen"):
        ExperienceBuffer(10, COLUMNS).restore({**state, "columns": {}})
    with pytest.raises(TownletError, match="has an invalid head: 5"):
        ExperienceBuffer(10, COLUMNS).restore({**state, "head": 5})
    wider = {**state["columns"], "seen": state["columns"]["seen"].astype(np.float64)}
    with pytest.raises(TownletError, match="'seen' was saved as float64"):
        ExperienceBuffer(10, COLUMNS).restore({**state, "columns": wider})


def test_invalid_experience_is_refused() -> None:
    buffer = filled(3, 3)
    with pytest.raises(ValueError, match="lacks 'count'"):
        buffer.add({name: value for name, value in row(9).items() if name != "count"}, **facts(9))
    with pytest.raises(ValueError, match="an unknown 'more'"):
        buffer.add({**row(9), "more": np.zeros(1)}, **facts(9))
    with pytest.raises(ValueError, match=r"'seen' has shape \(\), expected \(3,\)"):
        buffer.add({**row(9), "seen": np.asarray(1.0)}, **facts(9))
    with pytest.raises(ValueError, match="invalid literal"):
        buffer.add(row(9), **{**facts(9), "gate": "none"})  # type: ignore[arg-type]
    assert buffer.newest(10**9).number.tolist() == [0, 1, 2]
    assert_whole(buffer.newest(10**9))
    with pytest.raises(ValueError, match="cannot be named 'action'"):
        ExperienceBuffer(3, {"action": ColumnSpec((), "int64")})


def test_concurrent_adds_and_samples_are_consistent_and_fast() -> None:
    """Bounds on the median, because outliers on a busy machine are meaningless."""
    buffer = filled(10_000, 10_000)
    stop, lock, number = threading.Event(), threading.Lock(), 10_000
    adding: list[float] = []
    wrong: list[BaseException] = []

    def add() -> None:
        nonlocal number
        try:
            while not stop.is_set():
                with lock:
                    number += 1
                    own = number
                made, known = row(own), facts(own)
                start = time.perf_counter()
                buffer.add(made, **known)
                adding.append(time.perf_counter() - start)
        except BaseException as error:
            wrong.append(error)

    def sample(seed: int, took: list[float]) -> None:
        generator = fresh(seed)
        try:
            for turn in range(200):
                start = time.perf_counter()
                found = buffer.sample(32, generator, stratified=turn % 3 == 1, prioritized=turn % 3 == 2)
                took.append(time.perf_counter() - start)
                assert found is not None
                assert len(found) == 32
                assert_whole(found)
                buffer.update_priorities(*numbers_of(found), generator.random(32))
                if turn % 20 == 0:
                    assert_whole(buffer.newest(10**9))
        except BaseException as error:
            wrong.append(error)

    sampling: list[list[float]] = [[], []]
    adders = [threading.Thread(target=add) for _ in range(2)]
    samplers = [threading.Thread(target=sample, args=[seed, took]) for seed, took in enumerate(sampling)]
    for thread in (*adders, *samplers):
        thread.start()
    for thread in samplers:
        thread.join()
    stop.set()
    for thread in adders:
        thread.join()
    assert not wrong
    assert number > 11_000
    assert median(adding) < 1e-3
    assert median(sampling[0] + sampling[1]) < 10e-3
