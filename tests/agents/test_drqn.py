"""drqn remembers a cue and dqn does not; every part of the recurrence is needed; it resumes bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from agents.toy_envs import Chain, Corridor
from agents.training_loop import TrainingLoop, differing_leaves, success_rate
from townlet.agents.agent import AgentContext
from townlet.agents.dqn import Dqn, DqnSettings
from townlet.agents.drqn import Drqn, DrqnSettings
from townlet.buffers.sequence_replay import SequenceBatch
from townlet.errors import TownletError
from townlet.explore.intrinsic_reward import make_intrinsic_reward
from townlet.explore.spec import AdaptiveWeightSpec, EpsilonSpec, ExploreSpec, RndSpec, ScheduledWeightSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.vec_env import MaskedObs
from townlet.nets.spec import MlpSpec, RecurrentSpec
from townlet.rng import Streams

LENGTH = 10
EXPLORE = ExploreSpec(action_selection=EpsilonSpec(decay=0.97, end=0.05))
RND = ExploreSpec(bonus=RndSpec(hidden=(16,), embedding_size=8), weight=AdaptiveWeightSpec(episodes=2, mean=1.0))
QUICK: dict[str, Any] = {"lr": 5e-3, "gamma": 0.95, "batch_size": 16, "warmup": 200, "target_every": 20, "replay": 4000}
WHOLE: dict[str, Any] = {"sequence_length": LENGTH, "burn_in": 0}  # sequences as long as an episode
SHORT: dict[str, Any] = {
    "sequence_length": LENGTH // 2,
    "burn_in": LENGTH,
}  # half as long, with the whole past as burn-in
UNEQUAL = (1.0, 0.5)
LSTM = RecurrentSpec(size=16, post_widths=())


def make_loop(
    seed: int = 1, explore: ExploreSpec = EXPLORE, rewards: tuple[float, float] = (1.0, 1.0), **switches: Any
) -> TrainingLoop:
    env, counters = Corridor(16, LENGTH, rewards), Counters()
    settings, network = DrqnSettings(**(QUICK | switches)), MlpSpec(hidden=(16,), recurrent=LSTM)
    given = AgentContext(network, explore, env, counters, Streams(seed), LENGTH)
    return TrainingLoop(Drqn(settings, given), env, counters)


def score(loop: TrainingLoop, steps: int = 400) -> float:
    """Fraction of right choices in 512 episodes after `steps` vector steps, or once it reaches 0.95."""
    rate = 0.0
    for _ in range(4):
        loop.run(steps // 4)
        rate = success_rate(loop.agent.policy(), Corridor(256, LENGTH), 2 * LENGTH)
        if rate >= 0.95:
            break
    return rate


def agent_of(loop: TrainingLoop) -> Drqn:
    assert isinstance(loop.agent, Drqn)
    return loop.agent


def test_recurrent_agent_remembers_the_cue() -> None:
    assert score(make_loop(**WHOLE), 180) >= 0.95


def test_feed_forward_agent_stays_at_chance() -> None:
    env, counters = Corridor(16, LENGTH), Counters()
    settings = DqnSettings(**(QUICK | {"batch_size": 64}))
    agent = Dqn(settings, AgentContext(MlpSpec(hidden=(32,)), EXPLORE, env, counters, Streams(1), LENGTH))
    assert 0.4 < score(TrainingLoop(agent, env, counters)) < 0.6


@pytest.mark.parametrize("switch", ["bptt", "carry"])
def test_cue_is_forgotten_without_each_part_of_the_recurrence(switch: str) -> None:
    assert 0.4 < score(make_loop(**(WHOLE | {switch: False})), 180) < 0.6


@pytest.mark.parametrize(("burn_in", "low", "high"), [(LENGTH, 0.95, 1.0), (0, 0.4, 0.6)])
def test_sequences_shorter_than_an_episode_need_burn_in(burn_in: int, low: float, high: float) -> None:
    # With unequal rewards all values along the corridor depend on the cue, so short sequences can propagate it.
    assert low <= score(make_loop(rewards=UNEQUAL, sequence_length=5, burn_in=burn_in), 300) <= high


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 7))
def test_each_part_of_the_recurrence_is_needed_over_seeds(seed: int) -> None:
    assert score(make_loop(seed, **WHOLE), 600) >= 0.95
    assert score(make_loop(seed, rewards=UNEQUAL, **SHORT), 600) >= 0.95
    assert score(make_loop(seed, rewards=UNEQUAL, sequence_length=5, burn_in=0), 600) < 0.6
    assert score(make_loop(seed, carry=False, **WHOLE), 600) < 0.6
    assert score(make_loop(seed, bptt=False, **WHOLE), 300) < 0.6


def sequences_of(loop: TrainingLoop, batch: int = 12) -> SequenceBatch:
    return agent_of(loop).buffer.sample(batch)


@pytest.mark.parametrize(("bptt", "reaches"), [(True, True), (False, False)])
def test_gradient_flows_back_through_time_but_not_into_burn_in(bptt: bool, reaches: bool) -> None:
    loop = make_loop(sequence_length=5, burn_in=4, bptt=bptt)
    loop.run(20)
    sequences = sequences_of(loop)
    obs = sequences.obs.clone().requires_grad_()
    agent = agent_of(loop)
    values = agent.unroll(agent.network, sequences._replace(obs=obs))
    assert values.shape == (6, 12, 3)
    values[-1].sum().backward()
    assert obs.grad is not None
    moved = obs.grad.abs().amax((1, 2)) > 0
    assert moved.tolist() == [False] * 4 + [reaches] * 5 + [True]


def test_burn_in_affects_the_values_and_padding_before_it_does_not() -> None:
    loop = make_loop(sequence_length=3, burn_in=4)
    loop.run(40)
    agent, sequences = agent_of(loop), sequences_of(loop, 64)
    first = sequences.start.int().argmax(0)
    assert set(first.tolist()) == {0, 1, 2, 3, 4}
    values = agent.unroll(agent.network, sequences)
    for position in range(4):
        obs = sequences.obs.clone()
        obs[position] += 1.0
        changed = (agent.unroll(agent.network, sequences._replace(obs=obs)) != values).flatten(2).any(2).any(0)
        assert changed.tolist() == (first <= position).tolist()


def one_by_one(
    agent: Drqn, network: Any, sequences: SequenceBatch, row: int, begin: Tensor | None = None
) -> list[Tensor]:
    """Values after burn-in, from the first real step on, step by step."""
    hidden, found = network.initial_hidden(1) if begin is None else begin, []
    for k in range(int(sequences.start[:, row].int().argmax()), len(sequences.obs)):
        values, hidden = network(sequences.obs[k, row : row + 1], hidden)
        found.append(values[0])
    return found[-(agent.settings.sequence_length + 1) :]


@pytest.mark.parametrize("double", [True, False])
def test_targets_come_from_the_target_network_over_the_same_steps(double: bool) -> None:
    loop = make_loop(sequence_length=4, burn_in=5, double=double, explore=RND)
    loop.run(60)
    agent = agent_of(loop)
    with torch.no_grad():
        for weight in agent.target_network.parameters():  # the two networks disagree
            weight.mul_(-1.5)
        sequences = agent.buffer.sample(32, intrinsic_weight=0.5)
        found = agent.sequence_targets(sequences, agent.unroll(agent.network, sequences))
        for row in range(32):
            online, target = (
                one_by_one(agent, network, sequences, row) for network in (agent.network, agent.target_network)
            )
            for k in range(int(sequences.valid[:, row].sum())):
                mask = sequences.mask[5 + k + 1, row]
                valid = [a for a in range(3) if mask[a]]
                ranking = online if double else target
                best = max(valid, key=ranking[k + 1].tolist().__getitem__)
                expected = sequences.reward[5 + k, row] + sequences.discount[5 + k, row] * target[k + 1][best]
                assert found[k, row].item() == pytest.approx(expected.item(), abs=1e-5)


def test_padding_does_not_affect_the_loss() -> None:
    loop = make_loop(sequence_length=6, burn_in=2, lr=1e-12, batch_size=64)
    loop.run(60)
    agent = agent_of(loop)
    twin = agent_of(make_loop(seed=5, sequence_length=6, burn_in=2, batch_size=64))
    twin.restore(agent.state())
    sequences = twin.buffer.sample(64)
    with torch.no_grad():
        online = twin.unroll(twin.network, sequences)
        targets = twin.sequence_targets(sequences, online)
        errors = []
        for row in range(64):
            for k in range(int(sequences.valid[:, row].sum())):
                errors.append(online[k, row, sequences.actions[2 + k, row]] - targets[k, row])
    assert len(errors) < 64 * 6  # some are padded
    history = agent.learn()
    assert history is not None
    assert history["loss"] == pytest.approx(torch.stack(errors).square().mean().item(), rel=1e-4)
    assert history["td_error"] == pytest.approx(torch.stack(errors).abs().mean().item(), rel=1e-4)


def test_hidden_state_is_reset_only_in_rows_that_ended() -> None:
    env, counters = Chain(8), Counters()
    network = MlpSpec(hidden=(8,), recurrent=LSTM)
    agent = Drqn(DrqnSettings(), AgentContext(network, EXPLORE, env, counters, Streams(1), 20))
    observed, partial = env.reset(3), 0
    expected = agent.network.initial_hidden(8)
    for _ in range(60):
        with torch.no_grad():
            _, expected = agent.network(observed.obs, expected)
        step = env.step(agent.act(observed))
        agent.observe(step, env.final_obs())
        over = step.terminated | step.truncated
        partial += int(over.any() and not over.all())
        expected = expected.masked_fill(over.unsqueeze(1), 0.0)
        assert torch.allclose(agent.hidden, expected, atol=1e-5)
        assert not agent.hidden[~over].eq(0).all(1).any()
        observed = MaskedObs(step.obs, step.mask)
    assert partial > 3


@pytest.mark.parametrize("explore", [EXPLORE, RND], ids=["epsilon", "rnd"])
def test_resume_in_mid_episode_is_bit_identical(explore: ExploreSpec) -> None:
    whole = make_loop(explore=explore, sequence_length=5, burn_in=3, warmup=100)
    whole.run(23)
    saved = whole.state()
    assert saved["agent"]["hidden"].abs().sum() > 0
    history = whole.run(24)
    resumed = make_loop(seed=99, explore=explore, sequence_length=5, burn_in=3, warmup=100)
    resumed.run(6)
    resumed.restore(saved)
    assert resumed.run(24) == history
    assert len(history) == 6
    assert differing_leaves(whole.state(), resumed.state()) == []


def test_intrinsic_reward_is_weighted_once() -> None:
    bonus = RndSpec(hidden=(8,), embedding_size=4, normalize_obs=False)  # otherwise all rows observe the same
    loop = make_loop(
        explore=ExploreSpec(
            action_selection=EXPLORE.action_selection, bonus=bonus, weight=ScheduledWeightSpec(value=0.5)
        )
    )
    agent, env = agent_of(loop), loop.env
    twin = make_intrinsic_reward(bonus, env.layout, Streams(1).child("bonus"))
    assert twin is not None
    step = env.step(agent.act(loop.obs))
    agent.observe(step, env.final_obs())
    unweighted = twin.reward(step.obs)
    assert unweighted.min() > 0
    assert torch.equal(agent.intrinsic, unweighted)
    reward = agent.buffer.sample(512, agent.intrinsic_weight.value).reward[agent.settings.burn_in]
    assert set(reward.tolist()) == set((0.5 * unweighted).tolist())  # walking gives no other reward


def test_state_of_another_number_of_rows_is_rejected() -> None:
    state = make_loop().agent.state()
    with pytest.raises(TownletError, match="'drqn: hidden' was saved as"):
        make_loop().agent.restore(state | {"hidden": state["hidden"][:3]})


def test_every_setting_has_a_description() -> None:
    described = {name: field.description for name, field in DrqnSettings.model_fields.items() if name != "name"}
    assert all(described.values())
    assert DrqnSettings().lr == 1e-4
    assert DrqnSettings().sequence_length == 32


def by_hand(sequences: SequenceBatch, following: Tensor, burn_in: int, n: int, k: int, b: int) -> float:
    """The n-step target of position k of sequence b, step by step."""
    total, factor = 0.0, 1.0
    for ahead in range(n):
        t = burn_in + k + ahead
        total += factor * sequences.reward[t, b].item()
        factor *= sequences.discount[t, b].item()
        if ahead == n - 1 or t + 1 >= len(sequences.valid) or not sequences.valid[t + 1, b]:
            return total + factor * following[k + ahead, b].item()
    raise AssertionError("never here")


@pytest.mark.parametrize("n", [1, 3, 20])
def test_n_step_targets_end_with_the_episode_and_with_the_sequence(n: int) -> None:
    """57 steps end within an episode: where a sequence ends at the newest step, the target bootstraps there."""
    loop = make_loop(sequence_length=6, burn_in=2, n_step=n, double=False)
    loop.run(57)
    agent, sequences = agent_of(loop), sequences_of(loop, 40)
    short = sequences.valid.sum(0) < 6
    assert len(sequences.discount[-1, short].unique()) == 2, "some end with their episode, some with the newest step"
    with torch.no_grad():
        values = agent.unroll(agent.target_network, sequences)
        following = values[1:].masked_fill(~sequences.mask[3:], -torch.inf).amax(-1)
        targets = agent.sequence_targets(sequences, values)
    for b in range(40):
        for k in range(int(sequences.valid[:, b].sum())):
            assert targets[k, b].item() == pytest.approx(by_hand(sequences, following, 2, n, k, b), abs=1e-5)


def test_stored_state_equals_a_burn_in_of_the_whole_episode() -> None:
    never: dict[str, Any] = {"warmup": 10**9, "sequence_length": 3}
    stored, burnt = make_loop(burn_in=0, stored_state=True, **never), make_loop(burn_in=LENGTH, **never)
    values = []
    for loop in (stored, burnt):
        loop.run(60)
        with torch.no_grad():
            values.append(agent_of(loop).unroll(agent_of(loop).network, sequences_of(loop, 64)))
    torch.testing.assert_close(values[0], values[1])
    agent, sequences = agent_of(stored), sequences_of(stored, 64)
    from_zeros = agent.unroll(agent.network, sequences._replace(hidden=sequences.hidden * 0))
    assert (from_zeros - agent.unroll(agent.network, sequences)).any()


def test_stored_state_is_used_where_the_oldest_step_shortens_the_burn_in() -> None:
    """Nine slots are fewer than an episode has steps, so sequences start in the middle of it, too."""
    loop = make_loop(sequence_length=3, burn_in=4, stored_state=True, warmup=10**9, replay=16 * 9)
    loop.run(57)
    agent, sequences = agent_of(loop), sequences_of(loop, 64)
    short = sequences.start.int().argmax(0) > 0
    assert (sequences.hidden[short].abs().sum(1) > 0).any()
    with torch.no_grad():
        values = agent.unroll(agent.network, sequences)
        for row in range(64):
            expected = one_by_one(agent, agent.network, sequences, row, sequences.hidden[row : row + 1])
            torch.testing.assert_close(values[:, row], torch.stack(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("bptt", [True, False])
@pytest.mark.parametrize("stored", [True, False])
def test_without_carry_every_step_starts_with_an_empty_state(stored: bool, bptt: bool) -> None:
    loop = make_loop(sequence_length=5, burn_in=3, carry=False, stored_state=stored, bptt=bptt)
    loop.run(40)
    agent, sequences = agent_of(loop), sequences_of(loop)
    assert not agent.hidden.any()
    assert sequences.hidden.shape == (12, 0), "there is nothing to store"
    for network in (agent.network, agent.target_network):
        alone = network(sequences.obs[3:].flatten(0, 1), network.initial_hidden(6 * 12))[0].view(6, 12, 3)
        torch.testing.assert_close(agent.unroll(network, sequences), alone, atol=1e-6, rtol=0)
    network = agent.network
    network.body.carry = True
    hidden = network(sequences.obs[0], network.initial_hidden(12))[1]
    assert hidden.any(), "it could remember"
