"""Error messages: location, problem, fix, and suggestions."""

from __future__ import annotations

from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from townlet.errors import ConfigError, Diagnostic, SourceLocation, TownletError, did_you_mean


def test_source_location_omits_unknown_parts() -> None:
    assert str(SourceLocation("a.yaml", 3, 7)) == "a.yaml:3:7"
    assert str(SourceLocation("a.yaml", 3)) == "a.yaml:3"
    assert str(SourceLocation("a.yaml")) == "a.yaml"


def test_error_has_location_problem_and_fix() -> None:
    error = TownletError("size is 0", "write 1 or more", SourceLocation("a.yaml", 2, 1))
    assert str(error) == "a.yaml:2:1: size is 0; write 1 or more"
    assert error.diagnostics == (Diagnostic("size is 0", "write 1 or more", SourceLocation("a.yaml", 2, 1)),)
    assert str(TownletError("size is 0")) == "size is 0"


def test_config_error_sorts_by_line_and_drops_repeats() -> None:
    late, early, tenth = (Diagnostic("x", "", SourceLocation("a.yaml", line, 1)) for line in (2, 1, 10))
    with pytest.raises(TownletError) as caught:
        raise ConfigError([tenth, late, early, late, Diagnostic("no place")])
    assert str(caught.value) == "no place\na.yaml:1:1: x\na.yaml:2:1: x\na.yaml:10:1: x"


def test_the_nearest_name_is_suggested() -> None:
    names = ["energy", "Hygiene", "satiation"]
    assert did_you_mean("enrgy", names) == "did you mean 'energy'?"
    assert did_you_mean("HYGENE", names) == "did you mean 'Hygiene'?"
    assert did_you_mean("zzz", names) == "known: energy, Hygiene, satiation"
    assert did_you_mean("zzz", []) == "none is known here"


def test_long_list_of_names_is_truncated() -> None:
    hint = did_you_mean("zzz", [f"name{i}" for i in range(100)])
    assert hint.endswith("name11, …")


@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=20), max_size=5))
def test_any_word_gives_a_hint(word: str, names: list[str]) -> None:
    assert did_you_mean(word, names)
    for name in names:
        assert did_you_mean(name, [name]) == f"did you mean '{name}'?"


def test_config_error_can_be_copied_between_processes() -> None:
    """By pickle, as between processes."""
    made = ConfigError(
        [Diagnostic("no such row", "take another", SourceLocation("a.yaml", 3)), Diagnostic("and another")]
    )
    assert (copy(made).diagnostics, str(copy(made))) == (made.diagnostics, str(made))
