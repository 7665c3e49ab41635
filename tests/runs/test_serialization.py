"""States as flat tables: supported trees are restored exactly, everything else is rejected by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from townlet.errors import TownletError
from townlet.runs.serialization import MAX_DEPTH, flatten, unflatten

NAMES = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["a/b", "%2F", "%", "..", "/", ""])
NUMBERS = st.integers(-(10**38), 10**38) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.text(max_size=5) | NUMBERS
PLAIN = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
TREES = st.recursive(PLAIN, lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=12)


@settings(max_examples=examples(12, 100))
@given(st.dictionaries(NAMES, TREES, max_size=4))
def test_tree_is_restored_with_its_names_in_order(state: dict[str, Any]) -> None:
    found = unflatten(flatten(state))
    assert found == state
    assert repr(found) == repr(state)  # the order, and 1 against 1.0 against True


@pytest.mark.parametrize("kind", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"])
def test_arrays_become_tensors_of_their_type(kind: str) -> None:
    array = np.array([[0, 1], [1, 0]], kind)
    leaf = flatten({"a": array})["a"]
    assert np.asarray(leaf).dtype == array.dtype
    assert np.array_equal(np.asarray(leaf), array)


def test_views_empty_tensors_and_scalars_keep_their_shape() -> None:
    record = np.zeros(3, [("cell", "u4"), ("hour", "u2")])
    record["hour"] = [1, 2, 3]
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    state = {"hour": record["hour"], "frozen": frozen, "t": torch.arange(6).reshape(2, 3).T, "e": torch.zeros(0, 4)}
    leaves = flatten({**state, "one": np.float32(0.1), "zero": torch.tensor(3), "swapped": np.array([1, 2], ">u4")})
    assert leaves["hour"].tolist() == [1, 2, 3]
    assert leaves["frozen"].tolist() == [0, 1, 2]
    assert leaves["t"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert leaves["t"].is_contiguous()
    assert leaves["e"].shape == (0, 4)
    assert leaves["one"].dtype == torch.float32
    assert leaves["zero"].shape == ()
    assert leaves["swapped"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("leaf", "why"),
    [
        (float("nan"), "is nan"),
        ([1.0, float("-inf")], "is -inf"),
        (10**50, "too large"),
        ({1: 2}, "not a string"),
        ({"\ud800": torch.zeros(1)}, "cannot be encoded as UTF-8"),
        (object(), "is a object"),
        ([torch.zeros(1)], "is a Tensor"),
        (np.array(["text"]), "array of <U4"),
        (np.array([None]), "array of object"),
        (torch.zeros(2).to_sparse(), "not a dense tensor"),
        (b"bytes", "is a bytes"),
    ],
)
def test_unsupported_values_are_rejected_by_name(leaf: Any, why: str) -> None:
    with pytest.raises(TownletError, match=why) as caught:
        flatten({"part": {"leaf": leaf}})
    assert "part/leaf" in str(caught.value)


def test_cyclic_tree_is_rejected() -> None:
    loop: dict[str, Any] = {}
    loop["again"] = loop
    with pytest.raises(TownletError, match=f"deeper than {MAX_DEPTH}"):
        flatten(loop)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TownletError, match=f"deeper than {MAX_DEPTH}"):
        flatten({"a": endless})


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a/b"), ("a%2Fb", "a%2Fb/c")])
def test_name_is_either_a_leaf_or_a_branch(names: tuple[str, str]) -> None:
    with pytest.raises(TownletError, match=r"below a value|twice"):
        unflatten(dict.fromkeys(names, 1))
