"""Inference: valid actions for any batch, with a hidden state per row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from townlet.agents.policy import OutputKind, Policy
from townlet.errors import TownletError


class Echo(nn.Module):
    """Outputs the observation; the hidden state counts the steps of each row and is added to the last output."""

    def __init__(self, memory: bool = False) -> None:
        super().__init__()
        self.memory = memory

    def initial_hidden(self, rows: int) -> Tensor:
        return torch.zeros(rows, int(self.memory))

    def forward(self, obs: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        hidden = hidden + 1
        late = torch.cat((torch.zeros(len(obs), obs.shape[1] - 1), hidden), 1) if self.memory else 0.0
        return obs + late, hidden


ALL = torch.ones(1, 3, dtype=torch.bool)


@pytest.mark.parametrize("kind", ["values", "discrete"])
def test_best_valid_action_is_taken_and_ties_go_to_the_first(kind: OutputKind) -> None:
    policy = Policy(Echo(), kind)
    obs = torch.tensor([[9.0, 1.0, 2.0], [-5.0, -9.0, -7.0], [4.0, 4.0, 4.0]])
    mask = torch.tensor([[False, True, True], [False, True, True], [True, True, True]])
    assert policy.act(obs, mask).tolist() == [2, 2, 0]
    assert policy.act(obs).tolist() == [0, 0, 0], "without a mask all are valid"


def test_probabilities_cover_valid_actions() -> None:
    obs, mask = torch.tensor([[0.0, 50.0, 0.0]]), torch.tensor([[True, False, True]])
    shown = Policy(Echo(), "discrete").outputs(obs, mask)
    torch.testing.assert_close(shown["probabilities"], torch.tensor([[0.5, 0.0, 0.5]]))
    assert torch.equal(shown["logits"], obs)
    shown = Policy(Echo(), "values").outputs(obs, mask)
    assert shown["probabilities"].tolist() == [[1.0, 0.0, 0.0]]
    assert torch.equal(shown["values"], obs)


def test_sampling_needs_a_generator() -> None:
    obs = torch.zeros(3000, 3)
    mask = torch.tensor([True, False, True]).expand(3000, 3)
    drawn = Policy(Echo(), "discrete", torch.Generator().manual_seed(1)).act(obs, mask, greedy=False)
    counts = drawn.bincount(minlength=3)
    assert counts[1] == 0
    assert 1300 < counts[0] < 1700
    with pytest.raises(TownletError, match="no random generator"):
        Policy(Echo(), "discrete").act(obs, mask, greedy=False)


def test_feed_forward_policy_accepts_any_batch() -> None:
    policy = Policy(Echo(), "values")
    policy.reset(2)
    for rows in (1, 7, 2):
        assert policy.act(torch.zeros(rows, 3)).shape == (rows,)


def test_hidden_state_is_per_row_and_reset_at_episode_starts() -> None:
    policy = Policy(Echo(memory=True), "values")
    policy.reset(2)
    obs = torch.tensor([[1.5, 0.0, 0.0]] * 2)
    assert policy.act(obs).tolist() == [0, 0]
    assert policy.outputs(obs)["values"][:, 2].tolist() == [2, 2]
    assert policy.outputs(obs)["values"][:, 2].tolist() == [2, 2], "a look changes nothing"
    assert policy.act(obs, episode_start=torch.tensor([True, False])).tolist() == [0, 2]
    assert policy.act(obs).tolist() == [2, 2]
    policy.reset(2)
    assert policy.act(obs).tolist() == [0, 0]


def test_recurrent_policy_must_be_reset_for_other_rows() -> None:
    policy = Policy(Echo(memory=True), "values")
    policy.act(torch.zeros(2, 3))
    with pytest.raises(TownletError, match=r"hidden states of 2 rows, but the observations have 3; call reset\(3\)"):
        policy.act(torch.zeros(3, 3))
