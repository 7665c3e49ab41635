"""drqn remembers a cue, dqn cannot; every part of its memory is needed; it goes on to the bit from its state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from agents.lives import Life, differences, success
from agents.toys import Chain, Corridor
from townlet.agents.agent import AgentContext
from townlet.agents.dqn import Dqn, DqnSettings
from townlet.agents.drqn import Drqn, DrqnSettings
from townlet.buffers.sequence_replay import Windows
from townlet.errors import TownletError
from townlet.explore.intrinsic_reward import make_intrinsic_reward
from townlet.explore.spec import AdaptiveWeightSpec, EpsilonSpec, ExploreSpec, RndSpec, ScheduledWeightSpec
from townlet.interfaces.counters import Counters
from townlet.interfaces.vec_env import MaskedObs
from townlet.nets.spec import MlpSpec, RecurrentSpec
from townlet.rng import Streams

torch.set_num_threads(1)
LENGTH = 10
EXPLORE = ExploreSpec(action_selection=EpsilonSpec(decay=0.97, end=0.05))
RND = ExploreSpec(bonus=RndSpec(hidden=(16,), embedding_size=8), weight=AdaptiveWeightSpec(episodes=2, mean=1.0))
QUICK = {"lr": 5e-3, "gamma": 0.95, "batch_size": 16, "warmup": 200, "target_every": 20, "replay": 4000}
WHOLE = {"sequence_length": LENGTH, "burn_in": 0}  # windows as long as an episode
SHORT = {"sequence_length": LENGTH // 2, "burn_in": LENGTH}  # half as long, with all that came before
UNEQUAL = (1.0, 0.5)
LSTM = RecurrentSpec(size=16, post_widths=())


def life(
    seed: int = 1, explore: ExploreSpec = EXPLORE, pays: tuple[float, float] = (1.0, 1.0), **switches: Any
) -> Life:
    env, counters = Corridor(16, LENGTH, pays), Counters()
    settings, network = DrqnSettings(**(QUICK | switches)), MlpSpec(hidden=(16,), recurrent=LSTM)
    given = AgentContext(network, explore, env, counters, Streams(seed), LENGTH)
    return Life(Drqn(settings, given), env, counters)


def score(trained: Life, steps: int = 400) -> float:
    """Share of right choices in 512 episodes after so many vector steps."""
    trained.go_on(steps)
    return success(trained.agent.policy(), Corridor(256, LENGTH), 2 * LENGTH)


def agent_of(trained: Life) -> Drqn:
    assert isinstance(trained.agent, Drqn)
    return trained.agent


def test_recurrent_agent_remembers_the_cue() -> None:
    assert score(life(**WHOLE)) >= 0.95


def test_feed_forward_agent_stays_at_chance() -> None:
    env, counters = Corridor(16, LENGTH), Counters()
    settings = DqnSettings(**(QUICK | {"batch_size": 64}))
    agent = Dqn(settings, AgentContext(MlpSpec(hidden=(32,)), EXPLORE, env, counters, Streams(1), LENGTH))
    assert 0.4 < score(Life(agent, env, counters)) < 0.6


@pytest.mark.parametrize("switch", ["bptt", "carry"])
def test_memory_is_lost_without(switch: str) -> None:
    assert 0.4 < score(life(**WHOLE, **{switch: False})) < 0.6


@pytest.mark.parametrize(("burn_in", "low", "high"), [(LENGTH, 0.95, 1.0), (0, 0.4, 0.6)])
def test_windows_shorter_than_an_episode_need_burn_in(burn_in: int, low: float, high: float) -> None:
    # With unequal pays values tell of the cue all the way, so that short windows can hand the news on.
    assert low <= score(life(pays=UNEQUAL, sequence_length=5, burn_in=burn_in)) <= high


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 7))
def test_memory_and_its_parts_over_seeds(seed: int) -> None:
    assert score(life(seed, **WHOLE), 600) >= 0.95
    assert score(life(seed, pays=UNEQUAL, **SHORT), 600) >= 0.95
    assert score(life(seed, pays=UNEQUAL, sequence_length=5, burn_in=0), 600) < 0.6
    assert score(life(seed, carry=False, **WHOLE), 600) < 0.6
    assert score(life(seed, bptt=False, **WHOLE), 300) < 0.6


def windows_of(trained: Life, batch: int = 12) -> Windows:
    return agent_of(trained).buffer.sample(batch)


@pytest.mark.parametrize(("bptt", "reaches"), [(True, True), (False, False)])
def test_gradient_goes_back_through_time_and_never_into_burn_in(bptt: bool, reaches: bool) -> None:
    trained = life(sequence_length=5, burn_in=4, bptt=bptt)
    trained.go_on(20)
    windows = windows_of(trained)
    obs = windows.obs.clone().requires_grad_()
    agent = agent_of(trained)
    values = agent.unroll(agent.network, windows._replace(obs=obs))
    assert values.shape == (6, 12, 3)
    values[-1].sum().backward()
    assert obs.grad is not None
    moved = obs.grad.abs().amax((1, 2)) > 0
    assert moved.tolist() == [False] * 4 + [reaches] * 5 + [True]


def test_burn_in_reaches_the_values_and_padding_before_it_does_not() -> None:
    trained = life(sequence_length=3, burn_in=4)
    trained.go_on(40)
    agent, windows = agent_of(trained), windows_of(trained, 64)
    first = windows.window_start.int().argmax(0)
    assert set(first.tolist()) == {0, 1, 2, 3, 4}
    values = agent.unroll(agent.network, windows)
    for position in range(4):
        obs = windows.obs.clone()
        obs[position] += 1.0
        changed = (agent.unroll(agent.network, windows._replace(obs=obs)) != values).flatten(2).any(2).any(0)
        assert changed.tolist() == (first <= position).tolist()


def one_by_one(agent: Drqn, network: Any, windows: Windows, row: int, begin: Tensor | None = None) -> list[Tensor]:
    """Values after burn-in, from the first real step on, step by step."""
    hidden, found = network.initial_hidden(1) if begin is None else begin, []
    for k in range(int(windows.window_start[:, row].int().argmax()), len(windows.obs)):
        values, hidden = network(windows.obs[k, row : row + 1], hidden)
        found.append(values[0])
    return found[-(agent.settings.sequence_length + 1) :]


@pytest.mark.parametrize("double", [True, False])
def test_targets_are_those_of_the_target_network_over_the_same_steps(double: bool) -> None:
    trained = life(sequence_length=4, burn_in=5, double=double, explore=RND)
    trained.go_on(60)
    agent = agent_of(trained)
    with torch.no_grad():
        for weight in agent.target_network.parameters():  # the two networks disagree
            weight.mul_(-1.5)
        windows = agent.buffer.sample(32, intrinsic_weight=0.5)
        found = agent.window_targets(windows, agent.unroll(agent.network, windows))
        for row in range(32):
            online, target = (
                one_by_one(agent, network, windows, row) for network in (agent.network, agent.target_network)
            )
            for k in range(int(windows.valid[:, row].sum())):
                mask = windows.mask[5 + k + 1, row]
                valid = [a for a in range(3) if mask[a]]
                ranking = online if double else target
                best = max(valid, key=lambda a, at=ranking[k + 1]: at[a].item())
                expected = windows.reward[5 + k, row] + windows.discount[5 + k, row] * target[k + 1][best]
                assert found[k, row].item() == pytest.approx(expected.item(), abs=1e-5)


def test_padding_counts_for_nothing_in_the_loss() -> None:
    trained = life(sequence_length=6, burn_in=2, lr=1e-12, batch_size=64)
    trained.go_on(60)
    agent = agent_of(trained)
    twin = agent_of(life(seed=5, sequence_length=6, burn_in=2, batch_size=64))
    twin.restore(agent.state())
    windows = twin.buffer.sample(64)
    with torch.no_grad():
        online = twin.unroll(twin.network, windows)
        targets = twin.window_targets(windows, online)
        errors = []
        for row in range(64):
            for k in range(int(windows.valid[:, row].sum())):
                errors.append(online[k, row, windows.actions[2 + k, row]] - targets[k, row])
    assert len(errors) < 64 * 6  # some are padded
    figures = agent.learn()
    assert figures is not None
    assert figures["loss"] == pytest.approx(torch.stack(errors).square().mean().item(), rel=1e-4)
    assert figures["td_error"] == pytest.approx(torch.stack(errors).abs().mean().item(), rel=1e-4)


def test_rows_that_end_forget_and_no_others() -> None:
    env, counters = Chain(8), Counters()
    network = MlpSpec(hidden=(8,), recurrent=LSTM)
    agent = Drqn(DrqnSettings(), AgentContext(network, EXPLORE, env, counters, Streams(1), 20))
    seen, partial = env.reset(3), 0
    expected = agent.network.initial_hidden(8)
    for _ in range(60):
        with torch.no_grad():
            _, expected = agent.network(seen.obs, expected)
        step = env.step(agent.act(seen))
        agent.observe(step, env.final_obs())
        over = step.terminated | step.truncated
        partial += int(over.any() and not over.all())
        expected = expected.masked_fill(over.unsqueeze(1), 0.0)
        assert torch.allclose(agent.hidden, expected, atol=1e-5)
        assert not agent.hidden[~over].eq(0).all(1).any()
        seen = MaskedObs(step.obs, step.mask)
    assert partial > 3


@pytest.mark.parametrize("explore", [EXPLORE, RND], ids=["epsilon", "rnd"])
def test_train_stop_and_resume_in_mid_episode_gives_the_same_bits(explore: ExploreSpec) -> None:
    whole = life(explore=explore, sequence_length=5, burn_in=3, warmup=100)
    whole.go_on(43)
    saved = whole.state()
    assert saved["agent"]["hidden"].abs().sum() > 0
    figures = whole.go_on(40)
    resumed = life(seed=99, explore=explore, sequence_length=5, burn_in=3, warmup=100)
    resumed.go_on(6)
    resumed.restore(saved)
    assert resumed.go_on(40) == figures
    assert len(figures) == 10
    assert differences(whole.state(), resumed.state()) == []


def test_intrinsic_reward_is_weighted_once() -> None:
    bonus = RndSpec(
        hidden=(8,), embedding_size=4, normalize_obs=False
    )  # all rows see the same, which would be nothing new
    trained = life(
        explore=ExploreSpec(
            action_selection=EXPLORE.action_selection, bonus=bonus, weight=ScheduledWeightSpec(value=0.5)
        )
    )
    agent, env = agent_of(trained), trained.env
    twin = make_intrinsic_reward(bonus, env.layout, Streams(1).child("bonus"))
    assert twin is not None
    step = env.step(agent.act(trained.obs))
    agent.observe(step, env.final_obs())
    unweighted = twin.reward(step.obs)
    assert unweighted.min() > 0
    assert torch.equal(agent.intrinsic, unweighted)
    reward = agent.buffer.sample(512, agent.intrinsic_weight.value).reward[agent.settings.burn_in]
    assert set(reward.tolist()) == set((0.5 * unweighted).tolist())  # walking pays nothing else


def test_state_of_other_rows_is_refused() -> None:
    state = life().agent.state()
    with pytest.raises(TownletError, match="'drqn: hidden' was saved as"):
        life().agent.restore(state | {"hidden": state["hidden"][:3]})


def test_every_setting_says_what_it_does() -> None:
    described = {name: field.description for name, field in DrqnSettings.model_fields.items() if name != "name"}
    assert all(described.values())
    assert DrqnSettings().lr == 1e-4
    assert DrqnSettings().sequence_length == 32


def by_hand(windows: Windows, following: Tensor, burn_in: int, n: int, k: int, b: int) -> float:
    """The n-step target of position k of window b, step by step."""
    total, factor = 0.0, 1.0
    for ahead in range(n):
        t = burn_in + k + ahead
        total += factor * windows.reward[t, b].item()
        factor *= windows.discount[t, b].item()
        if ahead == n - 1 or t + 1 >= len(windows.valid) or not windows.valid[t + 1, b]:
            return total + factor * following[k + ahead, b].item()
    raise AssertionError("never here")


@pytest.mark.parametrize("n", [1, 3, 20])
def test_n_step_targets_end_with_the_episode_and_with_the_window(n: int) -> None:
    """57 steps end within an episode: where a window ends at the newest step, the target bootstraps there."""
    trained = life(sequence_length=6, burn_in=2, n_step=n, double=False)
    trained.go_on(57)
    agent, windows = agent_of(trained), windows_of(trained, 40)
    short = windows.valid.sum(0) < 6
    assert len(windows.discount[-1, short].unique()) == 2, "some end with their episode, some with the newest step"
    with torch.no_grad():
        values = agent.unroll(agent.target_network, windows)
        following = values[1:].masked_fill(~windows.mask[3:], -torch.inf).amax(-1)
        targets = agent.window_targets(windows, values)
    for b in range(40):
        for k in range(int(windows.valid[:, b].sum())):
            assert targets[k, b].item() == pytest.approx(by_hand(windows, following, 2, n, k, b), abs=1e-5)


def test_stored_memory_is_what_a_burn_in_of_the_whole_episode_would_bring() -> None:
    never = {"warmup": 10**9, "sequence_length": 3}
    stored, burnt = life(burn_in=0, stored_state=True, **never), life(burn_in=LENGTH, **never)
    values = []
    for trained in (stored, burnt):
        trained.go_on(60)
        with torch.no_grad():
            values.append(agent_of(trained).unroll(agent_of(trained).network, windows_of(trained, 64)))
    torch.testing.assert_close(values[0], values[1])
    agent, windows = agent_of(stored), windows_of(stored, 64)
    assert (
        agent.unroll(agent.network, windows._replace(hidden=windows.hidden * 0)) - agent.unroll(agent.network, windows)
    ).any()


def test_stored_memory_is_used_where_the_oldest_step_cuts_the_burn_in_short() -> None:
    """Nine slots are less than an episode: windows begin in its midst, not only at its first step."""
    trained = life(sequence_length=3, burn_in=4, stored_state=True, warmup=10**9, replay=16 * 9)
    trained.go_on(57)
    agent, windows = agent_of(trained), windows_of(trained, 64)
    short = windows.window_start.int().argmax(0) > 0
    assert (windows.hidden[short].abs().sum(1) > 0).any()
    with torch.no_grad():
        values = agent.unroll(agent.network, windows)
        for row in range(64):
            expected = one_by_one(agent, agent.network, windows, row, windows.hidden[row : row + 1])
            torch.testing.assert_close(values[:, row], torch.stack(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("bptt", [True, False])
@pytest.mark.parametrize("stored", [True, False])
def test_without_carry_every_step_is_the_first_lived_or_learned_from(stored: bool, bptt: bool) -> None:
    trained = life(sequence_length=5, burn_in=3, carry=False, stored_state=stored, bptt=bptt)
    trained.go_on(40)
    agent, windows = agent_of(trained), windows_of(trained)
    assert not agent.hidden.any()
    assert windows.hidden.shape == (12, 0), "there is nothing to store"
    for network in (agent.network, agent.target_network):
        alone = network(windows.obs[3:].flatten(0, 1), network.initial_hidden(6 * 12))[0].view(6, 12, 3)
        torch.testing.assert_close(agent.unroll(network, windows), alone, atol=1e-6, rtol=0)
    network = agent.network
    network.carry = True
    hidden = network(windows.obs[0], network.initial_hidden(12))[1]
    assert hidden.any(), "it could remember"
