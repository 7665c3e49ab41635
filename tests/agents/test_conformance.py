"""Conformance suite of agents: every registered agent passes it, and custom agents can use it as well."""

from __future__ import annotations

import fcntl
import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, cast, get_args
from zlib import crc32

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from crash.training_process import differences
from shared_runs import shared_folder, train_once
from townlet.agents.policy import Policy
from townlet.agents.registry import AgentEntry, entries
from townlet.config.scalar import to_flow_yaml
from townlet.config.schedule import Schedule
from townlet.config.type_info import allowed_types_of_field
from townlet.distributed.process_group import ProcessGroup
from townlet.errors import TownletError
from townlet.explore.spec import ExploreSpec
from townlet.interfaces.state import clone_state
from townlet.interfaces.vec_env import Continuous, MaskedObs
from townlet.live.agents import PolicyActor
from townlet.live.gym_episode import GymEpisode
from townlet.live.playback import PlayedEpisode
from townlet.live.policy_cache import PolicyCache
from townlet.live.rollout_worker import RolloutRequest, RolloutWorker
from townlet.live.watched_run import WatchedTownRun, open_watched_run
from townlet.runs import checkpoint
from townlet.runs.disk import replace_file
from townlet.runs.folder import Run
from townlet.sharing.export import export
from townlet.sweep.space import check_space, search_space
from townlet.sweep.trial import RUNS, SweepConfig, train_trial
from townlet.tasks.evaluation import ActingPolicy
from townlet.tasks.experiment import LoadedExperiment, load_experiment, reopen
from townlet.train.checkpointer import warm_start
from townlet.train.collect import collect
from townlet.train.episodes import NullListener
from townlet.train.parallel_training import require_parallel_support
from townlet.train.policies import TrainedPolicy, load_policy
from townlet.train.session import resume, start
from townlet.train.training import Training, build_training
from train.processes import Processes, assert_same, load_latest

ROWS, STEPS, MIDDLE, TRIED = 4, 256, 128, 64
BONUSES = allowed_types_of_field(ExploreSpec.model_fields["bonus"])
MEMORY = {"kind": "gru", "size": 8, "post_widths": [8]}
SMALL = {
    "rows": ROWS, "threads": 1, "budget": {"env_steps": STEPS}, "evaluation": {"episodes": 2, "every": STEPS},
    "metrics": {"every": 64, "tensorboard": False, "report": False},
}  # fmt: skip
TOWN = {"env": "town", "change": {"max_steps": 14}}
ENVS: dict[str, dict[str, Any]] = {"any": TOWN, "index": {"env": "Taxi-v4", "gym": {"max_episode_steps": 14}}}
BRIEF = {"n_steps": 8, "update_every": 8, "batch_size": 8, "warmup": 40}  # of the smoke settings: soon an update
CART = {"env": "CartPole-v1", "gym": {"max_episode_steps": 12}, "change": {}, "budget": {"env_steps": 64}}
SHARED = {
    "rows": 8, "budget": {"env_steps": 6 * STEPS}, "evaluation": {"episodes": 1, "every": 6 * STEPS},
    "metrics": {"every": 2 * STEPS, "tensorboard": False, "report": False},
}  # fmt: skip
# Trains recipes one after the other with two processes, each pair with its own port. Imports take most of the time, so
# they precede the fork.
TRAIN_ALL = """
import os, sys
import townlet.train.session
from townlet.cli.app import main
_, _, root, pause_at, *recipes = sys.argv
child = os.fork()
os.environ |= {"WORLD_SIZE": "2", "RANK": "0" if child else "1"}
for recipe, os.environ["MASTER_PORT"] in zip(recipes[::2], recipes[1::2]):
    try:
        main(["train", recipe, "--root", root, "--pause-at", pause_at])
    except SystemExit as end:
        if end.code:
            raise
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@dataclass(frozen=True)
class Case:
    """One agent, with a folder for its recipes and runs that all workers share."""

    entry: AgentEntry
    folder: Path
    file: str | None = None  # the file that registers it

    def load(self, *words: str, **parts: Any) -> LoadedExperiment:
        """A small recipe of the agent with its smoke settings."""
        return load_experiment(str(self.recipe(**parts)), words)

    def load_brief(self, *words: str) -> LoadedExperiment:
        """The same recipe with updates after fewer steps."""
        smaller = (f"agent.{key}={value}" for key, value in BRIEF.items() if self.entry.smoke.get(key, 0) > value)
        return self.load(*smaller, *words)

    def recipe(self, **parts: Any) -> Path:
        """The file of that recipe; `parts` replace its own."""
        agent = {"name": self.entry.name, **self.entry.smoke} | ({"file": self.file} if self.file else {})
        network = {"name": "mlp", "hidden": [16]}
        memory = {"recurrent": MEMORY} if self.entry.recurrent == "required" else {}
        whole = {**SMALL, **ENVS[self.entry.observations], "agent": agent, "network": network | memory, **parts}
        text = json.dumps(whole)
        path = self.folder / f"{self.entry.name}-{crc32(text.encode()):08x}.yaml"
        if not path.exists():
            replace_file(path, text.encode())
        return path

    def run(self, name: str = "whole", **parts: Any) -> Run:
        """A finished run, trained once for all workers."""
        with (self.folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            root = self.folder / name
            return Run.open("latest", root) if root.exists() else start(self.load(**parts), root).run


@pytest.fixture(scope="module", params=[entry.name for entry in entries()])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    entry = next(entry for entry in entries() if entry.name == request.param)
    return Case(entry, shared_folder(tmp_path_factory, f"agent-{entry.name}"))


def observations(t: LoadedExperiment | TrainedPolicy, rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random observations [rows, D], and masks [rows, K] with at least one valid action."""
    task = t.loaded.task if isinstance(t, TrainedPolicy) else t.task
    chance = np.random.default_rng(seed)
    draws = chance.random((rows, task.layout.size))
    for block in task.layout:
        if block.kind == "index":
            draws[:, block.slice] = chance.integers(int(block.low), int(block.high) + 1, (rows, block.size))
    mask = chance.random((rows, task.actions.choices)) < 0.5
    mask[np.arange(rows), chance.integers(0, mask.shape[1], rows)] = True
    return torch.from_numpy(draws.astype(np.float32)), torch.from_numpy(mask)


def update(t: Training) -> dict[str, float]:
    """Collect until the agent has learned: its metrics."""
    for _ in range(1000):
        collect(t, t.agent.update_interval, NullListener())
        if (metrics := t.agent.learn()) is not None:
            return metrics
    raise AssertionError("the agent never updated")


def clone_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in weights.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    assert list(one) == list(other)
    return all(torch.equal(one[name], other[name]) for name in one)


def load_weights_of(run: Run) -> dict[str, Tensor]:
    """The network's weights in the checkpoint that a warm start takes."""
    best = checkpoint.best(run.checkpoints)
    assert best is not None
    found: dict[str, Tensor] = checkpoint.load(best.path)[0]["training"]["agent"]["network"]
    return found


def switches(entry: AgentEntry) -> Iterator[tuple[str, Any]]:
    """Other values of every setting that is a switch: a flag, a choice, or something that may be null."""
    for key, info in entry.settings.model_fields.items():
        kinds = allowed_types_of_field(info)
        choices = [choice for kind in kinds for choice in kind.choices] if key != "name" else []
        values: list[Any] = [not info.default] if info.default in (True, False) and kinds[0].type is bool else choices
        if NoneType in get_args(info.annotation) and key != "file":
            models = [kind.model for kind in kinds if kind.model not in (None, Schedule)]
            values += [None] if info.default is not None else [{} if models else 0.5]
        yield from ((key, value) for value in values if value != info.default)


def trained_by_two(root: Path) -> dict[str, Run]:
    """A run of every agent that several processes can train: started by two, and finished by one."""
    cases = [Case(entry, root.parent) for entry in entries() if entry.shard_axes]
    recipes = [str(case.recipe(**SHARED)) for case in cases]
    ports = [str(Processes.free_port()) for _ in cases]
    words = [word for pair in zip(recipes, ports, strict=True) for word in pair]
    together = Processes(1, (str(root), str(4 * STEPS), *words), ("-c", TRAIN_ALL))
    try:
        ends = together.results()
    finally:
        together.kill()
    assert [code for code, _ in ends] == [0], ends
    found = {str(run.meta()["agent"]): run for run in Run.list(root)}
    for run in found.values():
        assert load_latest(run)[1]["env_steps"] == 4 * STEPS
        resume(run)
    return found


class AgentConformance:
    """The tests; a subclass supplies the fixture `case`."""

    def test_warm_start_loads_the_weights_of_another_run(self, case: Case) -> None:
        """A target network, if there is one, starts as a copy of the network."""
        fresh = build_training(case.load("seed=9"))
        before = clone_weights(fresh.agent.parameters())
        warm_start(fresh, case.run())
        state: Mapping[str, Any] = fresh.agent.state()
        assert not same(fresh.agent.parameters(), before)
        assert same(state["network"], load_weights_of(case.run()))
        assert same(state.get("target", state["network"]), state["network"])

    def test_agent_trains_with_its_smoke_settings(self, case: Case) -> None:
        found = checkpoint.latest(case.run().checkpoints)
        assert found is not None
        assert case.run().meta()["finished"]
        assert int(found.info["updates"]) >= 2
        weights = clone_weights(build_training(case.load()).agent.parameters())
        trained = build_training(case.load())
        trained.restore(checkpoint.load(found.path)[0]["training"])
        assert not same(weights, trained.agent.parameters())

    def test_resumed_run_is_bit_identical(self, case: Case, tmp_path: Path) -> None:
        part = start(case.load(), tmp_path, pause_at=MIDDLE - ROWS).run
        resume(part)
        assert differences(case.run().path, part.path) == []

    def test_policy_never_takes_a_masked_action(self, case: Case) -> None:
        trained = load_policy(case.run())
        obs, mask = observations(trained, TRIED)
        for greedy in (True, False) if case.entry.kind == "policy" else (True,):
            trained.reset(TRIED)
            actions = trained.act(obs, mask, greedy=greedy)
            assert (actions.shape, actions.dtype) == ((TRIED,), torch.int64)
            assert bool(mask.gather(1, actions.unsqueeze(1)).all())
        exploring = build_training(case.load()).agent
        obs, mask = observations(trained, ROWS)
        for _ in range(TRIED):  # without steps in between, so nothing is stored
            assert bool(mask.gather(1, exploring.act(MaskedObs(obs, mask)).unsqueeze(1)).all())

    def test_outputs_entropy_and_metrics_have_their_shapes(self, case: Case) -> None:
        t = build_training(case.load())
        agent, count = t.agent, t.env.actions.n
        metrics = update(t)
        assert metrics
        for name, value in (metrics | agent.metrics()).items():
            assert isinstance(value, float), name
            assert math.isfinite(value), name
        assert {"lr"} <= agent.metrics().keys()
        agent.act(t.obs)
        outputs = [agent.action_outputs]
        agent.act(t.obs)
        assert agent.describe_outputs([*outputs, agent.action_outputs], 3).shape == (2, 3, count)
        assert agent.output_label == ("values" if case.entry.kind == "value" else "probabilities")
        entropy = agent.entropy()
        assert entropy.shape == (ROWS,)
        assert bool(((entropy >= -1e-6) & (entropy <= 1 + 1e-6)).all())
        assert agent.intrinsic.shape == (ROWS,)

    def test_parameter_names_are_stable_and_match_the_checkpoint(self, case: Case) -> None:
        one, other = build_training(case.load()).agent, build_training(case.load("seed=3")).agent
        assert list(one.parameters()) == list(other.parameters()) != []
        assert set(one.parameters()) <= set(one.state()["network"])
        assert one.name == case.entry.name

    def test_sweep_samples_its_space_and_trains(self, case: Case, tmp_path: Path) -> None:
        optuna = pytest.importorskip("optuna")
        words = (f"budget.env_steps={MIDDLE}", f"evaluation.every={MIDDLE}")
        loaded, asked = case.load(*words), str(case.recipe())
        space = search_space(loaded.recipe, {})
        assert [*space] == [f"agent.{key}" for key in case.entry.sweep] != []
        check_space(asked, words, space)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(0)).ask()
        experiment = SweepConfig("sweep", asked, words, loaded.recipe, space, tmp_path)
        assert math.isfinite(train_trial(trial, experiment))
        assert trial.params.keys() == space.keys()
        (name,) = trial.user_attrs[RUNS]
        used = reopen(Run(experiment.root / name)).recipe.agent
        for path, value in trial.params.items():
            drawn = float(value) if isinstance(value, str) else value  # choices are strings
            assert getattr(used, path.removeprefix("agent.")) == pytest.approx(drawn, rel=1e-3), path

    def test_every_switch_can_be_changed_and_resumes_bit_for_bit(self, case: Case) -> None:
        for key, value in switches(case.entry):
            word = f"agent.{key}={to_flow_yaml(value)}"
            loaded = case.load_brief(word)
            t, again = build_training(loaded), build_training(loaded)
            now = getattr(t.recipe.agent, key)
            assert now == value or (value == {} and now is not None), word
            assert update(t), word
            before = clone_state(t.state())
            update(t)
            again.restore(before)
            update(again)
            assert same(t.agent.parameters(), again.agent.parameters()), word
            fresh = case.entry.network(t.agent.settings, t.recipe.network, t.env.layout, t.env.actions)
            fresh.load_state_dict(t.agent.state()["network"])  # playback and export use this network

    def test_agent_learns_from_a_bonus_or_rejects_it(self, case: Case) -> None:
        names = [kind.model.model_fields["name"].default for kind in BONUSES if kind.model]
        assert {*case.entry.bonuses} <= {*names} >= {"rnd"}
        for name in names:
            explore = {"bonus": name, "weight": {"name": "scheduled", "value": 0.1}}
            if name not in case.entry.bonuses:
                with pytest.raises(TownletError, match=rf"cannot learn from explore.bonus={name}"):
                    case.load(explore=explore)
                continue
            t = build_training(case.load(explore=explore))
            metrics = update(t)
            assert metrics["intrinsic_weight"] == pytest.approx(0.1)
            assert float(t.agent.intrinsic.sum()) > 0
            assert name != "rnd" or metrics["rnd_loss"] > 0, "the predictor is trained"

    def test_every_tunable_setting_changes_the_next_update(self, case: Case) -> None:
        t = build_training(case.load_brief())
        update(t)
        settings, before = t.agent.settings, clone_state(t.state())
        update(t)
        usual = clone_weights(t.agent.parameters())
        for key in case.entry.changeable:
            value = getattr(settings, key)
            other = value + 2 if isinstance(value, int) else (value or 0.0) * 1e-3 or (1e-6 if value is None else 0.5)
            t.restore(before)
            t.agent.tune(settings.model_copy(update={key: other}))
            update(t)
            assert not same(usual, clone_weights(t.agent.parameters())), key
            t.restore(before)
            t.agent.tune(settings)
            update(t)
            assert same(usual, clone_weights(t.agent.parameters())), "otherwise a difference proves nothing"

    def test_live_page_plays_the_agent_in_a_town(self, case: Case) -> None:
        if case.entry.observations == "index":
            pytest.skip("the observation of a town is not a state index")
        watched, policies = open_watched_run(case.run()), PolicyCache()
        assert isinstance(watched, WatchedTownRun)
        found = policies.find(case.run(), "latest")
        actor = PolicyActor(policies.policy(case.run(), found), 0.0, 0)
        episode = PlayedEpisode(watched.world, actor, 3, "latest checkpoint", found.env_steps, "Ada")
        moments = episode.reach(8)
        assert moments > 0
        assert episode.start_message().output_kind == ("values" if case.entry.kind == "value" else "probabilities")
        frame = episode.frame(0, moments)
        for action, outputs, mask in zip(frame.action[1:], frame.outputs[1:], frame.mask[1:], strict=True):
            assert action is not None
            assert outputs is not None
            assert mask is not None
            assert mask[action]
            valid = [value for value, is_valid in zip(outputs, mask, strict=True) if is_valid]
            assert outputs[action] == max(valid), "the greedy action has the largest output"
        assert all(frame.why[1:])
        (recording,) = watched.recordings()[-1:]
        assert watched.recorded_episode(recording["number"]).output_kind == actor.output_kind
        watched.close()

    def test_live_page_shows_values_and_advantages_of_an_episode(self, case: Case) -> None:
        run = case.run() if case.entry.observations == "index" else case.run("cart", **CART)
        estimate = reopen(run).recipe.agent.displayed_advantage()
        assert 0 <= estimate.gamma <= 1
        assert estimate.scale > 0
        assert estimate.text.endswith(".")
        episode = rolled_out(run)
        assert (episode.error, episode.about()["advantage"]) == ("", estimate.text)
        part = episode.part(0)
        steps = part["known"] - 1
        assert steps > 0
        assert part["output_kinds"] == ["values" if case.entry.kind == "value" else "probabilities"]
        assert len(part["rewards"]) == len(part["outputs"][part["output_kinds"][0]]) == steps
        valued = steps if estimate.lam is not None else 0
        assert (len(part["values"]), len(part["advantages"])) == (valued and valued + 1, valued)
        assert None not in (*part["values"], *part["advantages"]), "all are finite"
        assert all(info.description for key, info in case.entry.settings.model_fields.items() if key != "name")

    def test_loaded_and_exported_policies_act_like_the_agent(self, case: Case, tmp_path: Path) -> None:
        trained = load_policy(case.run(), "last")
        t = build_training(case.load())
        t.restore(checkpoint.load(trained.checkpoint.path)[0]["training"])
        fresh = case.entry.network(t.agent.settings, t.recipe.network, t.env.layout, t.env.actions)
        exported: Any = getattr(fresh, "actor", fresh) if case.entry.kind == "policy" else fresh
        exported.load_state_dict(load_file(export(trained, "safetensors", tmp_path / "policy.safetensors")))
        policies: list[ActingPolicy] = [t.agent.policy(), trained, Policy(exported, trained.kind)]
        for policy in policies:
            policy.reset(TRIED)
        for step in range(4):
            obs, mask = observations(trained, TRIED, step)
            first, *others = [policy.act(obs, mask) for policy in policies]
            for other in others:
                assert torch.equal(first, other)

    @pytest.mark.long(minutes=1)
    def test_exported_onnx_graph_acts_like_the_agent(self, case: Case, tmp_path: Path) -> None:
        import onnxruntime

        trained = load_policy(case.run(), "last")
        graph = onnxruntime.InferenceSession(export(trained, "onnx", tmp_path / "policy.onnx"))
        obs, mask = observations(trained, TRIED)
        memory = {"hidden": np.zeros((TRIED, trained.hidden_size), np.float32)} if trained.hidden_size else {}
        actions = graph.run(None, {"obs": obs.numpy(), "mask": mask.numpy(), **memory})[0]
        trained.reset(TRIED)
        assert actions.tolist() == trained.act(obs, mask).tolist()

    def test_agent_trains_a_recurrent_network_or_rejects_it(self, case: Case) -> None:
        if not case.entry.uses_network:
            pytest.skip("the agent has no network")
        network = {"name": "mlp", "hidden": [8], "recurrent": MEMORY}
        if case.entry.recurrent == "no":
            with pytest.raises(TownletError, match="cannot train a recurrent network"):
                case.load(network=network)
            return
        assert update(build_training(case.load(network=network)))
        if case.entry.recurrent == "required":
            with pytest.raises(TownletError, match="needs a recurrent network"):
                case.load(network={"name": "mlp", "hidden": [8]})

    def test_agent_learns_continuous_actions_or_rejects_them(self, case: Case) -> None:
        pendulum = {"env": "Pendulum-v1", "gym": {"max_episode_steps": 14}, "change": {}}
        if Continuous not in case.entry.actions:
            with pytest.raises(TownletError, match="needs discrete actions"):
                case.load(**pendulum)
            return
        t = build_training(case.load(**pendulum))
        assert update(t)
        assert t.agent.act(t.obs).shape == (ROWS, 1)

    def test_two_processes_then_one_match_a_single_process(
        self, case: Case, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        if not case.entry.shard_axes:
            with pytest.raises(TownletError, match=r"(cannot be trained by|supports towns only)"):
                require_parallel_support(case.load(rows=8).recipe, cast(ProcessGroup, Two()))
            return
        run = train_once(tmp_path_factory, "two-processes", trained_by_two)[case.entry.name]
        assert_same(case.run("one", **SHARED), run, updates=5)


class Two:
    """The part of a process group of two that `require_parallel_support` reads."""

    size = local_size = 2


def rolled_out(run: Run) -> GymEpisode:
    """An episode of the latest checkpoint, as the live page requests it."""
    worker = RolloutWorker()
    try:
        episode = worker.start(run, RolloutRequest(checkpoint="latest", seed=1))
        until = time.monotonic() + 60
        while not episode.over and time.monotonic() < until:
            time.sleep(0.01)
        return episode
    finally:
        worker.close()


class TestRegistered(AgentConformance):
    """Every agent in the registry."""
