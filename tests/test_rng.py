"""Named random streams from one seed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from townlet.errors import TownletError
from townlet.rng import MAX_SEED, Streams

seeds = st.integers(0, MAX_SEED)
names = st.text(max_size=12)


def draws(streams: Streams, name: str) -> list[int]:
    return [int(n) for n in streams.numpy(name).integers(0, 2**62, 4)]


@given(seeds, names)
def test_the_same_seed_and_name_give_the_same_stream(seed: int, name: str) -> None:
    assert draws(Streams(seed), name) == draws(Streams(seed), name)
    assert Streams(seed).key(name) == Streams(seed).key(name)
    assert 0 <= Streams(seed).key(name) < 2**62


@given(seeds, seeds, names, names)
def test_other_seeds_and_names_give_other_streams(seed: int, other: int, name: str, second: str) -> None:
    if name != second:
        assert draws(Streams(seed), name) != draws(Streams(seed), second)
        assert Streams(seed).key(name) != Streams(seed).key(second)
    if seed != other:
        assert draws(Streams(seed), name) != draws(Streams(other), name)
        assert Streams(seed).key(name) != Streams(other).key(name)


def test_children_have_independent_streams() -> None:
    streams = Streams(5)
    parts = [
        streams,
        streams.child("a"),
        streams.child("b"),
        streams.child("a").child("b"),
        streams.child("a/b"),
        streams.child("ab"),
    ]
    keys = [part.key(name) for part in parts for name in ("a", "b", "ab", "", "a/b")]
    assert len(set(keys)) == len(keys)
    assert streams.child("a").key("x") == Streams(5).child("a").key("x")


def test_streams_are_stable_across_processes_and_versions() -> None:
    """Runs are reproduced from their seed years later: these numbers must never change."""
    code = "from townlet.rng import Streams as S; print(S(7).key('town'), S(7).child('a').numpy('b').integers(2**32))"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        for seed in ("1", "2")
    ]
    assert [run.stdout.split() for run in runs] == [["1036009454779283761", "435219109"]] * 2


def test_streams_are_uncorrelated() -> None:
    columns = np.array([Streams(seed).numpy(f"row{i}").random(2000) for seed, i in ((0, 0), (0, 1), (1, 0), (1, 1))])
    correlation = np.corrcoef(columns) - np.eye(4)
    assert np.abs(correlation).max() < 0.1
    assert np.abs(columns.mean(axis=1) - 0.5).max() < 0.03


def test_keys_use_all_their_bits() -> None:
    keys = np.array([Streams(seed).key("town") for seed in range(2000)], dtype=np.uint64)
    shares = [float(((keys >> np.uint64(bit)) & np.uint64(1)).mean()) for bit in range(62)]
    assert min(shares) > 0.43
    assert max(shares) < 0.57


def test_torch_streams_follow_the_same_law() -> None:
    import torch

    def rand(seed: int, name: str) -> list[float]:
        return torch.rand(4, generator=Streams(seed).torch(name)).tolist()

    assert rand(1, "a") == rand(1, "a")
    assert rand(1, "a") != rand(1, "b")
    assert rand(1, "a") != rand(2, "a")


def test_importing_streams_does_not_import_torch() -> None:
    code = "import sys, townlet.rng; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_streams_leave_the_global_generators_alone() -> None:
    before = np.random.get_state(legacy=False)["state"]["key"].tolist()
    Streams(3).numpy("a").random(10)
    assert np.random.get_state(legacy=False)["state"]["key"].tolist() == before


@pytest.mark.parametrize("seed", [-1, 2**63, True, 1.0, "7", None])
def test_non_integer_seed_is_refused(seed: object) -> None:
    with pytest.raises(TownletError, match=r"seed cannot be .*; write an integer from 0 to"):
        Streams(seed)  # type: ignore[arg-type]
