"""NaN and infinity stop a run, and the error names the tensor."""

from __future__ import annotations

import pytest
import torch

from townlet.train.monitors import Diverged, check_metrics, check_reward, check_weights

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_bad_reward_is_named_by_its_row(value: float) -> None:
    reward = torch.zeros(1000)
    reward[[617, 618]] = value
    with pytest.raises(Diverged, match=rf"reward of row 617 is {value} at env_steps 8000; it comes from"):
        check_reward(reward, "at env_steps 8000")


def test_bad_reward_of_an_episode_is_named_by_the_row_of_the_episode() -> None:
    with pytest.raises(Diverged, match="reward of row 40 is nan"):
        check_reward(torch.tensor([0, NAN]), "now", torch.tensor([7, 40]))


def test_infinities_of_both_signs_do_not_hide_each_other() -> None:
    with pytest.raises(Diverged, match="reward of row 1 is -inf"):
        check_reward(torch.tensor([0, -INF, INF]), "now")


def test_finite_rewards_may_overflow_their_sum() -> None:
    check_reward(torch.full((4,), 3e38), "now")


def test_loss_is_named_before_metrics_that_follow_from_it() -> None:
    with pytest.raises(Diverged, match="diverged: loss is nan") as caught:
        check_metrics({"grad_norm": NAN, "mean_q": NAN, "loss": NAN}, "now")
    assert caught.value.tensor == "loss"
    with pytest.raises(Diverged, match="diverged: grad_norm is inf"):
        check_metrics({"mean_q": 0.0, "loss": 0.0, "grad_norm": INF}, "now")
    check_metrics({"loss": 1e300}, "now")


def test_bad_weights_are_named_with_their_value() -> None:
    weights = {"body.0.weight": torch.ones(3, 3), "head.weight": torch.ones(2, 2), "head.bias": torch.ones(2)}
    check_weights(weights, "now")
    weights["head.weight"][1, 0] = NAN
    with pytest.raises(Diverged, match=r"diverged: weight head\.weight is nan now"):
        check_weights(weights, "now")


def test_large_finite_weights_are_accepted() -> None:
    """Although their norm is infinite in float32."""
    check_weights({"weight": torch.full((100,), 1e30)}, "now")
