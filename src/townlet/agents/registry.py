"""The registry of agents: one entry per algorithm, with everything that other packages need to know about it.

An agent file ends with `register(AgentEntry(...))`. Agents of users register the same way: from a file that a recipe
names, or from an installed package whose entry point in the group `townlet.agents` is such an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Literal

from townlet.agents.agent import Agent, AgentContext
from townlet.agents.distributions import distribution_family
from townlet.agents.policy import OutputKind
from townlet.agents.settings import AgentSettings
from townlet.config.models import SearchRange
from townlet.errors import TownletError, did_you_mean
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Actions, Binary, Continuous, Discrete
from townlet.nets.spec import NetworkSpec

if TYPE_CHECKING:
    from torch import nn

BUILT_IN: Final = ("dqn", "drqn", "ppo", "pqn", "reinforce", "qlearning")  # modules of this package
ENTRY_POINTS: Final = "townlet.agents"  # group of entry points
ANY_ACTIONS: Final = (Discrete, Binary, Continuous)
LR_RANGE: Final = SearchRange(low=1e-5, high=1e-2)  # usual search range of a learning rate
GAMMA_CHOICES: Final = SearchRange(choices=(0.9, 0.95, 0.98, 0.99, 0.995, 0.999))


@dataclass(frozen=True)
class AgentEntry:
    """An agent: its classes, and what it supports.

    The network is a module with `hidden_size` (width of its hidden state, 0 without one) and `initial_hidden(rows)`. Of
    kind "value" it maps (obs, hidden) to (action values, hidden). Of kind "policy" it maps them to (outputs, state
    value, hidden), and its part `actor` to (outputs, hidden). The state of the agent holds its weights as "network".
    """

    settings: type[AgentSettings]
    agent: Callable[[Any, AgentContext], Agent]
    # Builds the network, without trained weights, from the settings, the recipe's `network`, observation and actions.
    network: Callable[[Any, NetworkSpec, ObservationLayout, Actions], nn.Module]
    kind: Literal["value", "policy"]
    on_policy: bool  # whether it learns only from data of its current policy
    rows: int  # default for `rows: auto`, the same on every machine
    recurrent: Literal["no", "optional", "required"] = "no"
    uses_network: bool = True  # False where `network` in the recipe changes nothing, as for a table
    actions: tuple[type[Actions], ...] = (Discrete,)
    bonuses: tuple[str, ...] = ("rnd", "counts")  # kinds of explore.bonus that it supports
    observations: Literal["any", "index"] = "any"  # "index": the observation is a state index
    sweep: Mapping[str, SearchRange] = field(default_factory=dict)  # settings that matter most, with usual ranges
    smoke: Mapping[str, Any] = field(default_factory=dict)  # settings with which 2 rows learn within 256 env_steps
    changeable: tuple[str, ...] = ("lr",)  # settings read at every update, so that they may change during training
    # How the agent's state is split between several processes: the axis of the rows in the tensors at or below a path
    # such as "rollout/hidden". Empty: it cannot be trained by several processes.
    shard_axes: Mapping[str, int] = field(default_factory=dict)
    unshardable: tuple[str, ...] = ()  # settings that must be null to train in several processes
    export_metadata: tuple[str, ...] = ()  # settings stated in the metadata of exported files

    @property
    def name(self) -> str:
        return str(self.settings.model_fields["name"].default)

    def output_kind(self, actions: Actions) -> OutputKind:
        """What the acting part of the network returns for these actions."""
        return "values" if self.kind == "value" else distribution_family(actions).kind


_entries: dict[str, AgentEntry] = {}
_load_errors: dict[str, str] = {}  # installed agents that could not be loaded, and why
_discovered = False
_lock = RLock()  # a server may look up agents from several threads before they are loaded


def register(entry: AgentEntry) -> AgentEntry:
    """Add an agent. Custom names may be registered again, e.g. by an edited file; built-in names may not."""
    name = entry.name
    if not isinstance(entry.settings.model_fields["name"].default, str) or not name.isidentifier():
        fix = 'give the settings a field name: Literal["my_agent"] = "my_agent"'
        raise TownletError(f"{entry.settings.__name__} does not name an agent", fix)
    if name in BUILT_IN and entry.settings.__module__ != f"{__package__}.{name}":
        raise TownletError(f"an agent '{name}' is built in", f"choose another name in {entry.settings.__name__}")
    axes: object = entry.shard_axes  # user code may not be type-checked
    if not isinstance(axes, Mapping):
        fix = 'write shard_axes={"path/in/state": axis} in its AgentEntry'
        raise TownletError(f"shard_axes of the agent '{name}' does not map paths to axes", fix)
    named = (*entry.sweep, *entry.smoke, *entry.changeable, *entry.unshardable, *entry.export_metadata)
    if unknown := [key for key in named if key not in entry.settings.model_fields]:
        raise TownletError(f"the agent '{name}' has no setting '{unknown[0]}'", "correct its AgentEntry")
    _entries[name] = entry
    return entry


def entry(name: str) -> AgentEntry:
    """The entry of this name; raises TownletError if there is none."""
    known = {agent.name: agent for agent in entries()}
    if name not in known:
        raise TownletError(f"no agent '{name[:60]}' is registered", load_error(name) or did_you_mean(name, [*known]))
    return known[name]


def entries() -> tuple[AgentEntry, ...]:
    """All agents: the built-in ones, then the others by name."""
    global _discovered
    with _lock:
        if not _discovered:
            _discovered = True
            for name in BUILT_IN:
                import_module(f"{__package__}.{name}")
            _load_installed()
    return tuple(_entries[name] for name in (*BUILT_IN, *sorted(_entries.keys() - {*BUILT_IN})))


def settings_models() -> tuple[type[AgentSettings], ...]:
    return tuple(agent.settings for agent in entries())


def load_error(name: str) -> str:
    """Why an installed agent of that name could not be loaded; "" if there is no such problem."""
    entries()
    return _load_errors.get(name, "")


def _load_installed() -> None:
    """Register the agents of installed packages. A broken one must not affect runs that do not use it."""
    for point in entry_points(group=ENTRY_POINTS):
        package = point.dist.name if point.dist else point.value
        try:
            loaded = point.load()
            if not isinstance(loaded, AgentEntry):
                raise TypeError(f"{point.value} is not an AgentEntry")
            register(loaded)
        except Exception as error:
            why = f"the installed package {package} cannot be loaded: {type(error).__name__}: {error}"
            _load_errors[point.name] = why.replace("\n", " ")[:300]
