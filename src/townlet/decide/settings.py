"""What can be set about the service. A file is checked whole: every mistake is told at once, and nothing starts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, create_model

from townlet.config.merge import apply_overrides
from townlet.config.models import StrictModel
from townlet.config.validate import validate_model, validate_partially
from townlet.config.yaml import Node, parse, read
from townlet.decide.domain import Domain
from townlet.decide.judge import JudgeSettings
from townlet.errors import ConfigError, Diagnostic, SourceLocation, did_you_mean

ROUNDING: Final = 0.01  # by which weights that should sum to 1 may miss it


class RewardSettings(StrictModel):
    """What a decision is worth for learning."""

    actual: float = Field(
        0.7, ge=0, le=1, description="Weight of what really came of it. Raised, the gate's opinion counts less."
    )
    gate: float = Field(
        0.3, ge=0, le=1, description="Weight of the gate's estimate now. Raised, learning follows the gate."
    )
    disagreement: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Of the gate's estimate, where it would not send that any more. Raised, counts more.",
    )
    skip_disagreement: bool = Field(False, description="Learn nothing from what the gate would not send any more.")
    wait: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Of the expected reward, for decisions that were not carried out. Raised, counts more.",
    )


class LearningSettings(StrictModel):
    """The trainer."""

    every: float = Field(
        1.0,
        ge=0,
        le=3600,
        description="Seconds between rounds; 0 as fast as samples_per_insert allows. Raised, calmer.",
    )
    batch: int = Field(32, ge=1, le=4096, description="Decisions in a step. Raised, steadier and dearer.")
    least: int = Field(8, ge=1, le=4096, description="Fewest decisions for a step. Raised, learning begins later.")
    steps: int = Field(1, ge=1, le=1000, description="Steps in a round. Raised, more is learned between two versions.")
    samples_per_insert: float = Field(
        8.0, gt=0, description="How often each decision is learned from in the mean. Raised, it is used up further."
    )
    lr: float = Field(1e-3, gt=0, le=1, description="Learning rate: raised, it learns faster until it diverges.")
    entropy: float = Field(0.01, ge=0, description="Bonus for undecided policies. Raised, it explores more and longer.")
    importance: float = Field(
        5.0,
        gt=0,
        description="Largest weight of a decision that is likelier now than it was. Raised, noisier and truer.",
    )
    max_grad_norm: float = Field(
        1.0, gt=0, description="Longer gradients are scaled down. Lowered, steadier and slower."
    )
    train_on_wait: bool = Field(False, description="Learn from decisions that were not carried out, too.")
    prioritized: bool = Field(False, description="Draw surprising decisions more often.")
    stratified: bool = Field(False, description="Draw half of a batch from what went well.")
    reward: RewardSettings = Field(RewardSettings(), description="What a decision is worth for learning.")


class MemorySettings(StrictModel):
    """What is kept to learn from, and what waits for its outcome."""

    capacity: int = Field(10_000, ge=1, le=10**7, description="Experiences. Raised, older ones are learned from.")
    held_out: float = Field(
        0.1, gt=0, lt=1, description="Share that is never learned from but judges versions. Raised, surer verdicts."
    )
    judged_by: int = Field(
        500, ge=1, le=10**6, description="Held-out experiences that judge. Raised, surer and slower."
    )
    expire_after: float = Field(300.0, gt=0, description="Seconds that an outcome may take. Raised, later ones count.")
    expired: float | None = Field(
        None, ge=-1, le=1, description="Outcome of those that never came; null leaves them out of learning."
    )
    territories: int = Field(10_000, ge=1, description="That are remembered; the longest silent is forgotten first.")
    pending: int = Field(100_000, ge=1, description="Decisions that may wait for outcomes; beyond, the oldest expire.")
    territory_bytes: int = Field(
        512 << 20, ge=1 << 20, description="Bytes for territories; beyond, the least recently used are evicted."
    )
    pending_bytes: int = Field(
        512 << 20, ge=1 << 20, description="Bytes for decisions that wait for outcomes; beyond, the oldest expire."
    )


class OverloadSettings(StrictModel):
    """What happens when more is asked than can be answered."""

    mode: Literal["gate_greedy", "refuse"] = Field(
        "gate_greedy", description="Who has waited for too long is decided for by the gate alone, or refused."
    )
    waiting: int = Field(
        512, ge=1, description="Observations that may wait; more are refused at once. Raised, longer waits."
    )
    waiting_bytes: int = Field(
        16 << 20, ge=1 << 17, description="Bytes of waiting observations as JSON; beyond, more are refused at once."
    )
    batch: int = Field(64, ge=1, le=1024, description="Observations that are decided together, at most.")
    patience: float = Field(0.05, gt=0, le=10, description="Seconds after which one has waited for too long.")


class LimitSettings(StrictModel):
    """Rate limits per token, over all its connections."""

    messages_per_second: float = Field(
        5000.0, gt=0, le=1e9, description="Sustained rate per token; further messages are refused one by one."
    )
    burst: float = Field(10_000.0, ge=1, le=1e9, description="Messages per token in a burst.")


class DecideSettings(StrictModel):
    """All of it, without what a domain adds: `gate` and `policy`."""

    domain: str
    seed: int = Field(0, ge=0, description="Of the first weights and of all draws.")
    explore: bool = Field(True, description="Draw actions by their probabilities; off, the likeliest is taken.")
    learning: LearningSettings = Field(LearningSettings(), description="The trainer.")
    memory: MemorySettings = Field(MemorySettings(), description="What is kept.")
    overload: OverloadSettings = Field(OverloadSettings(), description="Replayer capacity.")
    limits: LimitSettings = Field(LimitSettings(), description="Rate limits per token.")
    judge: JudgeSettings = Field(JudgeSettings(), description="Which versions may serve.")
    versions: int = Field(20, ge=2, description="Versions that are kept. Raised, one can go back further.")
    segment: int = Field(64 << 20, ge=4096, description="Bytes in a file of the log.")
    policy: str = ""
    gate: StrictModel = StrictModel()


def settings_model(domain: Domain) -> type[DecideSettings]:
    """The settings with what the domain adds."""
    kinds = tuple(domain.policies)
    gate: Any = (domain.gate_settings, Field(domain.gate_settings(), description="What the gate approves."))
    policy: Any = (Literal[kinds], Field(kinds[0], description="The form of the network."))
    name: Any = (Literal[domain.name], Field(description="What is decided for."))
    return create_model(f"{domain.name}_settings", __base__=DecideSettings, domain=name, policy=policy, gate=gate)


def load_settings(source: Path | str, overrides: Sequence[str], domains: dict[str, Domain]) -> DecideSettings:
    """Settings from a file, or the usual ones of a domain by name, with `key=value` over them; raises ConfigError."""
    node = read(source) if isinstance(source, Path) else parse(f"domain: {source}", "command line")
    node = apply_overrides(node, overrides)
    found = node.child("domain")
    name = str(found.value) if found else ""
    if name not in domains:
        where = (found or node).location if isinstance(source, Path) else None
        what = f"no domain is called '{name}'" if found else "`domain` is missing"
        raise ConfigError([Diagnostic(what, did_you_mean(name, sorted(domains)), where)])
    model = settings_model(domains[name])
    try:
        settings = validate_model(model, node)
    except ConfigError as error:
        rest = validate_partially(model, node)
        raise ConfigError([*error.diagnostics, *(_senseless(*rest) if rest else ())]) from None
    if wrong := _senseless(settings, node):
        raise ConfigError(wrong)
    return settings


def _senseless(settings: DecideSettings, node: Node) -> list[Diagnostic]:
    """What is wrong with values that are each right by themselves."""
    learning, wrong = settings.learning, []
    total = learning.reward.actual + learning.reward.gate
    if abs(total - 1) > ROUNDING + 1e-9:
        what = f"learning.reward: actual and gate sum to {total:g}"
        wrong.append(Diagnostic(what, "they must sum to 1", _place(node, "learning", "reward")))
    if learning.least > learning.batch:
        what = f"learning.least is {learning.least} and learning.batch only {learning.batch}"
        wrong.append(Diagnostic(what, "lower least or raise batch", _place(node, "learning", "least")))
    memory, judge = settings.memory, settings.judge
    if learning.least > memory.capacity:
        what = f"memory.capacity is {memory.capacity}, and learning.least {learning.least}: nothing would be learned"
        wrong.append(Diagnostic(what, "raise capacity or lower least", _place(node, "memory", "capacity")))
    if judge.least_count > memory.judged_by:
        what = (
            f"memory.judged_by is {memory.judged_by}, and judge.least_count {judge.least_count}: no verdict by reward"
        )
        wrong.append(Diagnostic(what, "raise judged_by or lower least_count", _place(node, "memory", "judged_by")))
    return wrong


def _place(node: Node, *path: str) -> SourceLocation:
    """Where this stands, or the nearest above it that does."""
    for key in path:
        below = node.child(key)
        if below is None:
            break
        node = below
    return node.location


def settings_hash(settings: StrictModel) -> str:
    """Twelve letters that stand for these values."""
    text = json.dumps(settings.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:12]
