"""A custom agent in a file or an installed package passes the conformance suite and trains from a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.test_conformance import AgentConformance, Case
from cli.program import Program, program
from townlet.agents import registry
from townlet.agents.settings import AgentSettings
from townlet.config import user_code
from townlet.errors import TownletError
from townlet.live.policy_cache import PolicyCache
from townlet.live.watched_run import WatchedTownRun, open_watched_run
from townlet.runs.folder import Run
from townlet.tasks.experiment import load_experiment, reopen

FILE = Path(__file__).with_name("toy_agent.py")
RECIPE = """
env: town
rows: 4
threads: 1
change: {max_steps: 8}
agent: {name: toy, file: toy_agent.py, lr: 0.02}
budget: {env_steps: 128}
evaluation: {episodes: 2, every: 64}
metrics: {tensorboard: false, report: false}
"""


@pytest.fixture
def no_custom_code() -> Iterator[None]:
    """As in a new process: no custom file was run or allowed; registrations are undone afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        _reset_registry(patch)
        yield


def _reset_registry(patch: pytest.MonkeyPatch) -> None:
    registry.entries()
    patch.setattr(registry, "_entries", dict(registry._entries))
    patch.setattr(registry, "_load_errors", {})
    patch.setattr(user_code, "_executed", [])
    patch.setattr(user_code, "_permitted", False)


class TestToy(AgentConformance):
    """The conformance suite for a custom agent."""

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
        with pytest.MonkeyPatch.context() as patch:
            _reset_registry(patch)
            user_code.execute_file(FILE)
            yield Case(registry.entry("toy"), tmp_path_factory.mktemp("toy"), str(FILE))


@pytest.fixture
def townlet(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    no_custom_code: None,
) -> Program:
    """The command line, in a folder with the agent and a recipe that uses it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy_agent.py").write_bytes(FILE.read_bytes())
    (tmp_path / "toy.yaml").write_text(RECIPE)
    return program(capsys, monkeypatch)


def test_custom_agent_trains_resumes_evaluates_exports_and_publishes_where_code_is_allowed(
    townlet: Program, tmp_path: Path
) -> None:
    refused = townlet("train", "toy.yaml")
    assert refused.code == 2
    assert refused.err.startswith("toy.yaml:6:")
    assert "toy_agent.py, which can do anything" in refused.err
    assert "add --allow-code if you trust it" in refused.err
    assert not (tmp_path / "runs").exists()
    done = townlet("train", "toy.yaml", "--pause-at", "64", "--allow-code")
    assert done.code == 0, done.err
    for words in (["train", "--resume", "latest"], ["eval", "latest", "--episodes", "2"], ["export", "latest"]):
        done = townlet(*words, "--allow-code")
        assert done.code == 0, done.err
    run = Run.open("latest", tmp_path / "runs")
    assert run.meta()["finished"]
    assert (run.path / "policy.safetensors").is_file()
    assert len(run.meta()["code"][0]) == 64
    page = open_watched_run(run)
    assert isinstance(page, WatchedTownRun)
    page.close()
    shown = PolicyCache()
    policy = shown.policy(run, shown.find(run, "latest")).policy()
    policy.reset(1)
    mask = torch.tensor([[False, True, False, False, False, False]])
    assert policy.act(torch.zeros(1, page.world.layout.size), mask, torch.tensor([True]))[0] == 1
    done = townlet("publish", "latest", "--to", "given", "--episodes", "2", "--allow-code")
    assert done.code == 0, done.err
    (tmp_path / "toy_agent.py").unlink()
    with pytest.MonkeyPatch.context() as patch:
        _reset_registry(patch)  # as in another process
        patch.delitem(registry._entries, "toy")
        refused = townlet("eval", "given", "--episodes", "2")
        assert refused.code == 2
        assert "--allow-code" in refused.err
        with pytest.raises(TownletError, match="--allow-code"):
            open_watched_run(Run(tmp_path / "given"))
        assert townlet("eval", "given", "--episodes", "2", "--allow-code").code == 0


def test_file_changed_after_the_start_is_reported(townlet: Program, tmp_path: Path) -> None:
    assert townlet("train", "toy.yaml", "--pause-at", "64", "--allow-code").code == 0
    run = Run.open("latest", tmp_path / "runs")
    assert reopen(run).notes == ()
    with (tmp_path / "toy_agent.py").open("a") as file:
        file.write("# another line\n")
    (note,) = reopen(run).notes
    assert note.startswith(f"{tmp_path / 'toy_agent.py'} has changed since this run started")


@pytest.mark.usefixtures("no_custom_code")
@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("{name: tyo, file: toy_agent.py}", "toy.yaml:6:9: agent.name cannot be 'tyo'; did you mean 'toy'?"),
        ("{name: toy, file: toy_agent.py, lrr: 1}", "toy.yaml:6:40: unknown key 'lrr' in agent; did you mean 'lr'?"),
        ("{name: toy, file: toy_agent.py, lr: -1}", "toy.yaml:6:40: agent.lr cannot be -1; write a number above 0"),
        ("{name: toy, file: nothing.py}", "toy.yaml:6:20: there is no Python file"),
        (
            "{name: toy, file: broken.py}",
            "cannot be loaded: NameError: name 'nonsense' is not defined; correct the file",
        ),
        ("{name: ppo, file: taken.py}", "an agent 'ppo' is built in; choose another name in Settings"),
        ("toy", "toy.yaml:6:1: agent.name cannot be 'toy'; known: dqn, drqn, ppo, pqn, reinforce, qlearning"),
    ],
)
def test_mistakes_are_reported_with_their_location(
    agent: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    user_code.permit()
    text = RECIPE.replace("{name: toy, file: toy_agent.py, lr: 0.02}", agent)
    (tmp_path / "toy_agent.py").write_bytes(FILE.read_bytes())
    (tmp_path / "broken.py").write_text("nonsense\n")
    (tmp_path / "taken.py").write_text(
        "from typing import Literal\nfrom townlet.agents.registry import AgentEntry, register\n"
        "from townlet.agents.settings import AgentSettings\n"
        'class Settings(AgentSettings):\n    name: Literal["ppo"] = "ppo"\n    lr: float = 1.0\n'
        'register(AgentEntry(Settings, None, None, kind="policy", on_policy=True, rows=1))\n'
    )
    (tmp_path / "toy.yaml").write_text(text)
    with pytest.raises(TownletError) as caught:
        load_experiment("toy.yaml")
    assert message in str(caught.value)


def test_settings_without_a_name_cannot_be_registered() -> None:
    entry = replace(registry.entry("ppo"), settings=AgentSettings)  # `name` has no default
    with pytest.raises(TownletError, match="AgentSettings does not name an agent"):
        registry.register(entry)


@pytest.mark.usefixtures("no_custom_code")
def test_broken_agent_package_does_not_affect_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_package.py").write_bytes(FILE.read_bytes())
    for name, target in (("toy", "toy_package:ENTRY"), ("lost", "no_such_module:ENTRY"), ("odd", "json:loads")):
        folder = tmp_path / f"{name}_agents-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-agents\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[townlet.agents]\n{name} = {target}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_discovered", False)
    assert [entry.name for entry in registry.entries()] == [*registry.BUILT_IN, "toy"]
    (tmp_path / "toy.yaml").write_text(RECIPE.replace("file: toy_agent.py, ", ""))
    assert load_experiment(str(tmp_path / "toy.yaml")).recipe.agent.name == "toy"
    with pytest.raises(TownletError, match=r"lost-agents cannot be loaded: ModuleNotFoundError: No module named"):
        load_experiment(str(tmp_path / "toy.yaml"), ["agent=lost"])
    with pytest.raises(TownletError, match=r"no agent 'odd' is registered; .*json:loads is not an AgentEntry"):
        registry.entry("odd")
    with pytest.raises(TownletError, match="no agent 'pqo' is registered; did you mean 'pqn'"):
        registry.entry("pqo")


@pytest.mark.usefixtures("no_custom_code")
def test_entry_that_contradicts_its_settings_is_rejected() -> None:
    user_code.execute_file(FILE)
    toy = registry.entry("toy")
    wrong: list[dict[str, Any]] = [
        {"changeable": ("clip",)},
        {"sweep": {"clip": registry.LR_RANGE}},
        {"smoke": {"clip": 1}},
    ]
    for facts in wrong:
        with pytest.raises(TownletError, match="the agent 'toy' has no setting 'clip'"):
            registry.register(replace(toy, **facts))
