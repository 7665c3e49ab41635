"""Validation of settings: all errors are reported at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from townlet.decide.domains import DOMAINS
from townlet.decide.settings import load_settings, settings_hash
from townlet.errors import ConfigError

WRONG = """\
domain: hive
policy: planes
learning:
  batch_size: 4
  min_batch_size: 8
  intervall: 2
  reward: {actual: 0.9, gate: 0.3}
memory:
  capacity: 7
  held_out_capacity: 99
gate:
  threshold: high
"""


def test_all_errors_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "game.yaml"
    file.write_text(WRONG)
    with pytest.raises(ConfigError) as found:
        load_settings(file, (), DOMAINS)
    messages = {(m.where.line if m.where else 0): str(m) for m in found.value.diagnostics}
    assert sorted(messages) == [2, 5, 6, 7, 9, 10, 12]
    assert "plain" in messages[2]
    assert "min_batch_size is 8, but learning.batch_size is 4" in messages[5]
    assert "interval" in messages[6]
    assert "sum to 1.2" in messages[7]
    assert "capacity is 7, but learning.min_batch_size is 8" in messages[9]
    assert "held_out_capacity is 99, but promotion.min_count is 100" in messages[10]
    assert "threshold" in messages[12]


def test_smallest_consistent_settings_are_accepted() -> None:
    load_settings("hive", ["memory.capacity=8", "memory.held_out_capacity=100"], DOMAINS)


@pytest.mark.parametrize(("actual", "gate", "right"), [(0.7, 0.3, True), (0.7, 0.309, True), (0.7, 0.32, False)])
def test_reward_weights_must_sum_to_one(actual: float, gate: float, right: bool) -> None:
    words = [f"learning.reward.actual={actual}", f"learning.reward.gate={gate}"]
    if right:
        assert load_settings("hive", words, DOMAINS).learning.reward.gate == gate
    else:
        with pytest.raises(ConfigError, match="must sum to 1"):
            load_settings("hive", words, DOMAINS)


def test_unknown_domain_is_reported_with_suggestions() -> None:
    with pytest.raises(ConfigError, match=r"^no domain is called 'hives'; did you mean 'hive'"):
        load_settings("hives", (), DOMAINS)


def test_gate_hash_depends_on_values_only() -> None:
    usual, same, other = (
        load_settings("hive", words, DOMAINS).gate for words in ((), ("seed=3",), ("gate.threshold=0.5",))
    )
    assert settings_hash(usual) == settings_hash(same) != settings_hash(other)
