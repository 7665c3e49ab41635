"""Mathematical mistakes that are easy to make, and the fast test that catches each of them.

Every mistake is planted into a copy of the sources, where its test must fail. No test of learning counts: agents often
learn a toy in spite of a mistake. Each entry of the table is a title, `@` the test, `-` the text as it is in exactly
one place of the sources, and `+` the mistake that takes its place.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
TABLE = """
entropy bonus with the wrong sign (ppo)
@ agents/test_ppo_losses.py::test_loss_of_one_step_by_hand
- - c.entropy_coef * e.entropy.mean()
+ + c.entropy_coef * e.entropy.mean()

masked actions in the loss (ppo)
@ agents/test_ppo_losses.py::test_loss_of_one_step_by_hand
- family.distribution(outputs, batch.mask)  # categorical
+ family.distribution(outputs, torch.ones_like(batch.mask))  # categorical

ratio not clipped (ppo)
@ agents/test_ppo_losses.py::test_clipped_surrogate_by_hand
- ratio.clamp(1 - c.clip, 1 + c.clip) * e.advantage)
+ ratio * e.advantage)

maximum of the clipped and unclipped objective (ppo)
@ agents/test_ppo_losses.py::test_clipped_surrogate_by_hand
- -torch.minimum(ratio * e.advantage,
+ -torch.maximum(ratio * e.advantage,

minimum of the clipped and unclipped value loss (ppo)
@ agents/test_ppo_losses.py::test_value_loss_by_hand
- torch.maximum(error, (clipped
+ torch.minimum(error, (clipped

hidden state not reset at the start of an episode (ppo)
@ agents/test_recurrent_ppo.py::test_recomputed_rollout_matches_the_collected_one
- self._hidden.masked_fill_(self._episode_start.unsqueeze(1), 0.0)
+ pass

truncated episode bootstraps from the observation after the reset (ppo)
@ agents/test_ppo.py::test_only_truncated_rows_bootstrap_and_from_their_final_observation
- self.network(ended.obs.index_select(0, index), hidden)[1]
+ self.network(step.obs.index_select(0, ended.rows.index_select(0, index)), hidden)[1]

microbatches not weighted by their size (ppo)
@ agents/test_ppo.py::test_microbatches_give_the_gradient_of_the_whole_minibatch
- len(index) / shard.total
+ 1.0

terminated episode bootstraps (gae)
@ buffers/test_rollout.py::test_truncation_bootstraps_and_termination_does_not
- next_value.masked_fill_(terminated, 0.0)
+ next_value.masked_fill_(terminated & truncated, 0.0)

truncated episode does not bootstrap (gae)
@ buffers/test_rollout.py::test_truncation_bootstraps_and_termination_does_not
- torch.where(truncated, self.bootstrap[:t], next_value, out=next_value)
+ next_value.masked_fill_(truncated, 0.0)

advantages cross a truncation (gae)
@ buffers/test_rollout.py::test_truncation_bootstraps_and_termination_does_not
- .masked_fill_(terminated | truncated, 0.0)
+ .masked_fill_(terminated, 0.0)

λ in place of γ (gae)
@ buffers/test_rollout.py::test_truncation_bootstraps_and_termination_does_not
- next_value, alpha=gamma, out=advantage)
+ next_value, alpha=gae_lambda, out=advantage)

λ missing (gae)
@ buffers/test_rollout.py::test_advantages_are_those_of_the_definition
- decay.fill_(gamma * gae_lambda)
+ decay.fill_(gamma)

autoreset steps in minibatches (rollout)
@ agents/test_autoreset.py::test_autoreset_steps_do_not_affect_ppo
- if sampleable is None:
+ if True:

log-density without −log σ (gaussian)
@ agents/test_distributions.py::test_gaussian_matches_torch
- 0.5 * z.square() + self.log_std + 0.5 * LOG_2PI
+ 0.5 * z.square() + 0.5 * LOG_2PI

masked actions in the entropy (categorical)
@ agents/test_distributions.py::test_probabilities_log_probabilities_and_entropy_by_hand
- -(self.probs_by_action * self.log_probs).sum(0)
+ torch.special.entr(self._logits.softmax(-1)).sum(-1)

masked actions in the maximum of a target
@ agents/test_dqn_update.py::test_invalid_next_action_is_never_the_max
- selection.where(mask, -torch.inf).argmax(-1, keepdim=True)
+ selection.argmax(-1, keepdim=True)

target network not used (dqn)
@ agents/test_dqn_update.py::test_double_dqn_selects_online_and_evaluates_with_the_target
- self.target_network(obs, self._no_hidden)[0]
+ self.network(obs, self._no_hidden)[0]

double Q-learning ranks by the target network (dqn)
@ agents/test_dqn_update.py::test_double_dqn_selects_online_and_evaluates_with_the_target
- self._q(batch.next_obs) if self.settings.double else next_values
+ next_values

importance weights missing in the loss (dqn)
@ agents/test_dqn_update.py::test_importance_weights_scale_the_loss_and_priorities_follow_the_errors
- losses = importance * losses
+ pass

terminated episode bootstraps (dqn)
@ agents/test_dqn_update.py::test_truncation_bootstraps_from_the_final_observation_and_termination_does_not
- discount.masked_fill_(storage.take("terminated", last), 0.0)
+ discount

truncated episode bootstraps from the observation after the reset (dqn)
@ agents/test_dqn_update.py::test_truncation_bootstraps_from_the_final_observation_and_termination_does_not
- self._next_obs.copy_(step.obs).index_copy_(0, ended.rows, ended.obs)
+ step.obs

soft update by the wrong fraction (dqn)
@ agents/test_dqn_update.py::test_polyak_moves_the_target_by_a_fraction_at_every_update
- self._target_vector.lerp_(self.optimizer.vector, self.settings.polyak)
+ self._target_vector.lerp_(self.optimizer.vector, 1 - self.settings.polyak)

n-step return crosses the end of an episode
@ agents/test_dqn_update.py::test_n_step_sums_rewards_and_stops_at_an_episode_end
- is_last = storage.flat["ended"].take(path) | (self._offsets >= steps_to_newest)
+ is_last = self._offsets >= steps_to_newest

n-step return crosses from the newest step to the oldest
@ buffers/test_replay.py::test_the_oldest_step_does_not_follow_the_newest_in_a_full_buffer
- is_last = storage.flat["ended"].take(path) | (self._offsets >= steps_to_newest)
+ is_last = storage.flat["ended"].take(path)

γ instead of γⁿ
@ agents/test_dqn_update.py::test_n_step_sums_rewards_and_stops_at_an_episode_end
- self._discounts.take(later_steps + 1)
+ self._discounts[1].repeat(len(index))

importance weights not normalized
@ buffers/test_prioritized.py::test_importance_is_the_power_of_n_times_probability_over_the_largest
- return index, (priority / priority.min())
+ return index, (priority * (len(index) / self._tree.total))

priorities without the exponent α
@ buffers/test_prioritized.py::test_indices_are_sampled_in_proportion_to_their_priority
- .pow_(self.spec.alpha)
+ .pow_(1.0)

off by one at the boundaries of the sum tree
@ buffers/test_sum_tree.py::test_sum_tree_matches_a_list
- torch.searchsorted(ends, rest, right=True)
+ torch.searchsorted(ends, rest, right=False)

burn-in in the loss (replay of sequences)
@ buffers/test_sequence_replay.py::test_truncated_and_terminated_episodes_differ_in_the_discount_alone
- valid=(self._positions >= self.burn_in) & (self._positions < self.burn_in + lengths)
+ valid=self._positions < self.burn_in + lengths

sequence reaches into the episode before (replay of sequences)
@ buffers/test_sequence_replay.py::test_sampled_sequences_match_the_script
- outside = ended[: self.burn_in] | (offset > steps_to_oldest)
+ outside = offset > steps_to_oldest

gradient flows into the burn-in (drqn)
@ agents/test_drqn.py::test_gradient_flows_back_through_time_but_not_into_burn_in
-     @torch.no_grad()
-     def _burn_in(
+     def _burn_in(

padding in the loss (drqn)
@ agents/test_drqn.py::test_padding_does_not_affect_the_loss
- valid = sequences.valid[burn_in:]
+ valid = torch.ones_like(sequences.valid[burn_in:])

hidden state not reset at the end of an episode (drqn)
@ agents/test_drqn.py::test_hidden_state_is_reset_only_in_rows_that_ended
- self.hidden.index_fill_(0, ended.rows, 0.0)
+ pass

n-step return crosses the end of an episode (drqn)
@ agents/test_drqn.py::test_n_step_targets_end_with_the_episode_and_with_the_sequence
- torch.where(continues, targets[1:], next_value[:-1])
+ targets[1:]

hidden state not reset within a sequence
@ nets/test_recurrent.py::test_episode_start_splits_a_sequence
- part.masked_fill(resets[t], 0.0) for part in
+ part for part in

γ and λ swapped (pqn)
@ agents/test_pqn.py::test_targets_are_lambda_returns
- self.last_value, s.gamma, s.q_lambda
+ self.last_value, s.q_lambda, s.gamma

masked actions in the value of a state (pqn)
@ agents/test_pqn.py::test_targets_are_lambda_returns
- max_q = greedy_value(values, values, inputs.mask)
+ max_q = values.amax(1)

regression on advantages instead of returns (pqn)
@ agents/test_pqn.py::test_targets_are_lambda_returns
- batch.actions, batch.returns, s.loss)
+ batch.actions, batch.advantage, s.loss)

truncated episode bootstraps from the observation after the reset (pqn)
@ agents/test_pqn.py::test_only_truncated_episodes_bootstrap_and_from_their_final_observation
- self._max_q(ended.obs.index_select(0, index), ended.mask.index_select(0, index))
+ self._max_q(step.obs, step.mask).index_select(0, ended.rows.index_select(0, index))

wrong sign of the policy gradient (reinforce)
@ agents/test_reinforce.py::test_loss_of_one_step_by_hand
- -log_prob * advantage
+ log_prob * advantage

baseline not subtracted (reinforce)
@ agents/test_reinforce.py::test_baseline_is_subtracted_from_the_returns
- returns - self._baseline(returns, steps.value)
+ returns - 0 * self._baseline(returns, steps.value)

terminated episode bootstraps (reinforce)
@ agents/test_reinforce.py::test_only_truncated_episodes_bootstrap_and_from_their_final_observation
- truncated = step.truncated.index_select(0, ended.rows).nonzero().squeeze(1)
-         if self.settings
+ truncated = (step.truncated | step.terminated).index_select(0, ended.rows).nonzero().squeeze(1)
+         if self.settings

reward-to-go not discounted (reinforce)
@ buffers/test_episode_buffer.py::test_every_step_of_an_episode_can_have_its_whole_return
- torch.where(ended[t], bootstrap[t], next_return), alpha=gamma)
+ torch.where(ended[t], bootstrap[t], next_return))

reward-to-go from the first step instead of the last (reinforce)
@ buffers/test_episode_buffer.py::test_every_step_of_an_episode_can_have_its_whole_return
- for t in range(steps - 1, -1, -1):
+ for t in range(steps):

terminated episode bootstraps (qlearning)
@ agents/test_qlearning.py::test_update_by_hand
- greedy_value(selection, values, next_mask).masked_fill_(terminated, 0.0)
+ greedy_value(selection, values, next_mask)

double Q-learning with one table (qlearning)
@ agents/test_qlearning.py::test_double_q_learning_evaluates_with_the_other_table
- values = table[1 - which, next_state] if
+ values = table[which, next_state] if

truncated episode bootstraps from the observation after the reset (qlearning)
@ agents/test_qlearning.py::test_truncated_episode_bootstraps_from_its_final_observation
- next_obs = step.obs.index_copy(0, ended.rows, ended.obs)
-         next_mask
+ next_obs = step.obs
+         next_mask

schedule of ε counted in updates
@ explore/test_action_selection.py::test_a_schedule_in_steps_replaces_the_decay
- (clock.env_steps - begin) / (end - begin)
+ (clock.updates - begin) / (end - begin)

Gumbel noise with the wrong sign (softmax exploration)
@ explore/test_action_selection.py::test_actions_are_as_frequent_as_they_are_probable
- .sub_(self._group.local_rows(noise).log())
+ .add_(self._group.local_rows(noise).log())

intrinsic reward not normalized (rnd)
@ explore/test_intrinsic_reward.py::test_reward_is_scaled_by_the_root_mean_square_of_all_novelty_so_far
- error / self._mean_square.sqrt().clamp(min=1e-8).float()
+ error

gradient norm not limited
@ nets/test_optimizers.py::test_only_gradients_above_the_limit_are_scaled
- gradient *= norm.reciprocal().mul_(max_norm).clamp_(max=1.0)
+ gradient *= 1.0

short gradients lengthened to the limit
@ nets/test_optimizers.py::test_only_gradients_above_the_limit_are_scaled
- gradient *= norm.reciprocal().mul_(max_norm).clamp_(max=1.0)
+ gradient *= max_norm / norm

bias correction missing (adam)
@ agents/test_ppo.py::test_every_optimizer_makes_its_own_step
- self._step += 1
+ self._step.fill_(1e6)

mean of the advantages not subtracted (dueling)
@ nets/test_heads.py::test_dueling_by_hand
- torch.eye(outputs) - 1 / outputs
+ torch.eye(outputs)

gradient of the wrong term where the ratio is clipped (accelerated ppo)
@ agents/accelerated/test_gradients.py::test_analytic_ppo_gradients_match_autograd
- -unclipped * (unclipped <=
+ -unclipped * (unclipped >=

gradient of the entropy bonus with the wrong sign (accelerated ppo)
@ agents/accelerated/test_gradients.py::test_analytic_ppo_gradients_match_autograd
- -entropy_coef * step_weight
+ entropy_coef * step_weight

block of minibatches with the target network of its first one (accelerated dqn)
@ agents/accelerated/test_minibatch_blocks.py::test_block_gradients_match_single_minibatches
- s.target_every - agent.counters.updates % s.target_every
+ s.gradient_steps

truncated episodes bootstrap from the observation after the rollout (graphed ppo)
@ train/test_graphed_rollout.py::test_graphed_rollout_stores_and_reports_the_same
- agent.rollout.bootstrap.copy_(forward(truncated_obs)
+ agent.rollout.bootstrap.copy_(forward(next_obs)
"""


class Mistake(NamedTuple):
    """A change of the sources, and the test that catches it."""

    title: str
    test: str  # file below tests, and name
    old: str
    new: str


def mistakes() -> Iterator[Mistake]:
    for entry in TABLE.strip().split("\n\n"):
        title, *lines = entry.splitlines()
        parts = {mark: "\n".join(line[2:] for line in lines if line[0] == mark) for mark in "@-+"}
        yield Mistake(title, *parts.values())


MISTAKES = tuple(mistakes())


@pytest.fixture(scope="module")
def sources() -> dict[Path, str]:
    """The text of every module, by its path below src."""
    return {path.relative_to(ROOT / "src"): path.read_text() for path in (ROOT / "src" / "townlet").rglob("*.py")}


def places(sources: dict[Path, str], text: str) -> list[Path]:
    """The modules that hold a text, once for each time."""
    return [path for path, source in sources.items() for _ in range(source.count(text))]


def test_every_mistake_can_be_planted_and_its_test_exists(sources: dict[Path, str]) -> None:
    """Where a change of the sources or of the names of tests breaks an entry, adapt the table."""
    found = {mistake: places(sources, mistake.old) for mistake in MISTAKES}
    assert [(mistake.old, *map(str, paths)) for mistake, paths in found.items() if len(paths) != 1] == []
    tests = [(ROOT / "tests" / mistake.test.split("::")[0], mistake.test.split("::")[1]) for mistake in MISTAKES]
    assert [test for test in tests if f"def {test[1]}(" not in test[0].read_text()] == []
    assert len({mistake.title for mistake in MISTAKES}) == len(MISTAKES) > 55


def run_tests(src: Path, *tests: str) -> tuple[int, str]:
    """The exit status and the output of pytest on other sources."""
    environment = os.environ | {
        "PYTHONPATH": str(src), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "1000",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(src / "hypothesis"),
    }  # fmt: skip
    options = ("-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-n", "0", "-m", "not long")
    command = [sys.executable, "-m", "pytest", *options, *(f"tests/{test}" for test in tests)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def copy_sources(to: Path) -> Path:
    """Symbolic links to all sources; replacing a module does not change the original."""
    return shutil.copytree(ROOT / "src", to / "src", copy_function=os.symlink)


@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.title for mistake in MISTAKES])
def test_planted_mistake_is_caught(mistake: Mistake, sources: dict[Path, str], tmp_path: Path) -> None:
    (path,) = places(sources, mistake.old)
    src = copy_sources(tmp_path)
    (src / path).unlink()
    (src / path).write_text(sources[path].replace(mistake.old, mistake.new))
    status, output = run_tests(src, mistake.test)
    assert status == 1, output
    # The test must fail by an assertion; a mistake that only breaks the code would prove nothing.
    assert re.search(r"^FAILED \S+.* - (AssertionError|assert )", output, re.MULTILINE), output
    assert not re.search(r"^ERROR ", output, re.MULTILINE), output


@pytest.mark.long
def test_tests_pass_without_a_mistake(tmp_path: Path) -> None:
    status, output = run_tests(copy_sources(tmp_path), *sorted({mistake.test for mistake in MISTAKES}))
    assert status == 0, output
