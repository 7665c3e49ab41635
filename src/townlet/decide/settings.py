"""Settings of the decision service. A file is validated completely: all errors are reported at once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import ConfigDict, Field, create_model

from townlet.config.merge import apply_overrides
from townlet.config.models import StrictModel
from townlet.config.validate import validate_model, validate_partially
from townlet.config.yaml import Node, parse, read
from townlet.decide.domain import NO_OPTIONS, Domain
from townlet.errors import ConfigError, Diagnostic, SourceLocation, TownletError, did_you_mean

TOLERANCE: Final = 0.01  # allowed deviation of weights that must sum to 1

ModelT = TypeVar("ModelT", bound=StrictModel)
Share = Annotated[float, Field(ge=0, le=1)]
Duration = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?[smhd]$")]
Bytes = Annotated[int, Field(ge=1 << 20)]


class RewardSettings(StrictModel):
    """Training reward of a decision."""

    actual: Share = Field(0.7, description="Weight of the outcome. Higher: the gate's estimate counts less.")
    gate: Share = Field(0.3, description="Weight of the gate's estimate. Higher: learning follows the gate.")
    disagreement: Share = Field(
        0.5, description="Weight of the gate's estimate if the gate would no longer send the decision."
    )
    skip_disagreement: bool = Field(False, description="Skip decisions that the gate would no longer send.")
    wait: Share = Field(0.5, description="Weight of the gate's estimate for unsent decisions. Higher: they count more.")


class LearningSettings(StrictModel):
    """Settings of the trainer."""

    model_config = ConfigDict(serialize_by_alias=True)  # `validate` is a method of every model

    enabled: bool = Field(True, description="Learn while serving; off: the version that serves stays.")
    validate_: bool = Field(
        True, alias="validate", description="Rate decisions with the current gate; off: keep its ratings of that time."
    )
    interval: float = Field(1.0, ge=0, le=3600, description="Seconds between rounds; 0: as fast as possible.")
    batch_size: int = Field(32, ge=1, le=4096, description="Batch size. Higher: steadier gradients and slower steps.")
    min_batch_size: int = Field(8, ge=1, le=4096, description="Smallest batch. Higher: learning starts later.")
    gradient_steps: int = Field(
        1, ge=1, le=1000, description="Gradient steps per round. Higher: fewer versions, each further from the last."
    )
    samples_per_insert: float = Field(8.0, gt=0, description="Samples drawn per new experience. Higher: more reuse.")
    lr: float = Field(1e-3, gt=0, le=1, description="Learning rate. Higher: learns faster, but may diverge.")
    entropy_coef: float = Field(0.01, ge=0, description="Entropy coefficient. Higher: explores more and longer.")
    max_importance: float = Field(5.0, gt=0, description="Largest importance weight. Higher: noisier and less biased.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradient norm limit. Lower: steadier and slower.")
    train_on_wait: bool = Field(False, description="Also train on decisions that were not sent.")
    prioritized: bool = Field(False, description="Sample decisions with large errors more often.")
    stratified: bool = Field(False, description="Sample half of each batch from decisions with a positive outcome.")
    reward: RewardSettings = Field(RewardSettings(), description="Training reward of a decision.")


class MemorySettings(StrictModel):
    """Replay buffer, held-out experience, pending decisions and territories."""

    capacity: int = Field(10_000, ge=1, le=10**7, description="Size of the replay buffer. Higher: older data is used.")
    held_out: float = Field(0.1, gt=0, lt=1, description="Fraction of decisions held out for evaluation.")
    held_out_capacity: int = Field(500, ge=1, le=10**6, description="Held-out experiences. Higher: narrower intervals.")
    expire_after: float = Field(300.0, gt=0, description="Seconds until a pending decision expires.")
    expired_outcome: float | None = Field(
        None, ge=-1, le=1, description="Outcome of expired decisions; null: not used in training."
    )
    territories: int = Field(10_000, ge=1, description="Maximum number; the least recently used are evicted.")
    pending: int = Field(100_000, ge=1, description="Maximum number of pending decisions; the oldest expire.")
    territory_bytes: Bytes = Field(512 << 20, description="Maximum size; the least recently used are evicted.")
    pending_bytes: Bytes = Field(512 << 20, description="Maximum size of all pending decisions; the oldest expire.")


class OverloadSettings(StrictModel):
    """Behavior when observations arrive faster than they can be decided."""

    mode: Literal["gate_greedy", "refuse"] = Field(
        "gate_greedy",
        description="A request that waited longer than patience is answered by the gate alone or refused.",
    )
    waiting: int = Field(512, ge=1, description="Observations that may wait; further ones are refused.")
    waiting_bytes: int = Field(
        16 << 20, ge=1 << 17, description="Bytes of waiting observations; further ones are refused."
    )
    batch_size: int = Field(64, ge=1, le=1024, description="Largest batch of observations.")
    patience: float = Field(0.05, gt=0, le=10, description="Seconds that a request waits before `mode` applies.")


class LimitSettings(StrictModel):
    """Rate limits per token, over all its connections."""

    messages_per_second: float = Field(5000.0, gt=0, le=1e9, description="Sustained rate; excess messages are refused.")
    burst: float = Field(10_000.0, ge=1, le=1e9, description="Messages per token in a burst.")


class PromotionSettings(StrictModel):
    """Which versions may serve."""

    min_count: int = Field(100, ge=1, description="Held-out experiences needed to compare rewards. Lower: noisier.")
    min_effective_size: float = Field(
        50.0, ge=1, description="Effective sample size needed to compare rewards. Lower: noisier."
    )
    entropy_floor: Share = Field(0.05, description="Lowest normalized entropy. Higher: exploration is kept.")
    min_entropy_ratio: Share = Field(
        0.5, description="Lowest entropy, as a fraction of the serving version's. Higher: entropy falls more slowly."
    )
    min_pass_ratio: Share = Field(
        0.8, description="Lowest pass rate, as a fraction of the serving version's; 0: any pass rate."
    )
    tolerance: float = Field(0.02, ge=0, description="Tolerated loss of reward. Higher: worse versions may serve.")
    max_reward_loss: float = Field(0.1, ge=0, description="Loss of reward above which a version is refused.")
    small_change: Share = Field(
        0.1, description="Fraction of changed decisions up to which a version need only appear harmless."
    )
    stale_steps: int = Field(
        1000, ge=0, description="Steps by which the version it was trained from may be older than the serving version."
    )
    patience: int = Field(50, ge=1, description="Versions held in a row until training returns to the serving one.")
    confidence_level: float = Field(0.95, gt=0, lt=1, description="Confidence level. Higher: more versions are held.")
    resamples: int = Field(500, ge=20, le=100_000, description="Bootstrap resamples. Higher: steadier and slower.")
    clip: float | None = Field(None, gt=0, description="Largest importance weight. Lower: less variance, more bias.")


class DecideSettings(StrictModel):
    """All settings; the domain supplies the types of `gate`, `policy` and `options`, and may change defaults."""

    domain: str
    seed: int = Field(0, ge=0, description="Seed of the initial weights and of all sampling.")
    explore: bool = Field(True, description="Sample actions from the policy; off: take the most probable one.")
    learning: LearningSettings = Field(LearningSettings(), description="The trainer.")
    memory: MemorySettings = Field(MemorySettings(), description="Buffers, pending decisions and territories.")
    overload: OverloadSettings = Field(OverloadSettings(), description="Behavior under overload.")
    limits: LimitSettings = Field(LimitSettings(), description="Rate limits per token.")
    promotion: PromotionSettings = Field(PromotionSettings(), description="Which versions may serve.")
    versions: int = Field(20, ge=2, description="Versions that are kept. Higher: older ones can be restored.")
    keep: Duration | None = Field(
        None, description="How long records are kept, such as 90d; null: forever. Higher: more of the past is replayed."
    )
    segment_bytes: int = Field(64 << 20, ge=4096, description="Size of a segment file of the log.")
    policy: str = ""
    options: StrictModel = Field(NO_OPTIONS, description="Settings of the policies.")
    gate: StrictModel = StrictModel()


def settings_model(domain: Domain) -> type[DecideSettings]:
    """The settings of a service for this domain, as a model."""
    policies = tuple(domain.policies)
    gate: Any = (domain.gate_settings, Field(domain.gate_settings(), description="Which decisions the gate sends."))
    policy: Any = (Literal[policies], Field(policies[0], description="Network architecture."))
    options: Any = (domain.options, Field(domain.options(), description="Settings of the policies."))
    name: Any = (Literal[domain.name], Field(description="Domain to decide for."))
    base = _change_defaults(DecideSettings, domain.default_settings)
    fields = {"domain": name, "policy": policy, "options": options, "gate": gate}
    return create_model(f"{domain.name}_settings", __base__=base, **fields)


def stored_settings(domain: Domain, stored: Mapping[str, Any]) -> DecideSettings:
    """Settings as a service has stored them."""
    return settings_model(domain).model_validate_json(json.dumps(stored))


def _change_defaults(model: type[ModelT], defaults: Mapping[str, Any]) -> type[ModelT]:
    """The model with other defaults; those of a section are given as a mapping."""
    fields: dict[str, Any] = {}
    for name, default in defaults.items():
        known = model.model_fields[name]
        kind: Any = Annotated[(known.annotation, *known.metadata)] if known.metadata else known.annotation
        if isinstance(default, Mapping):
            kind = _change_defaults(kind, default)
            default = kind()
        fields[name] = (kind, Field(default, description=known.description))
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields) if fields else model


def load_settings(source: Path | str, overrides: Sequence[str], domains: Mapping[str, Domain]) -> DecideSettings:
    """Settings from a file, or the defaults of a domain, with `key=value` overrides; raises ConfigError."""
    node = read(source) if isinstance(source, Path) else parse(f"domain: {json.dumps(source)}", "command line")
    node = apply_overrides(node, overrides)
    domain = node.child("domain")
    where = (domain or node).location if isinstance(source, Path) else None
    if domain is None:
        raise ConfigError([Diagnostic("`domain` is missing", did_you_mean("", sorted(domains)), where)])
    found = _find(str(domain.value), source, where, domains)
    model, node = settings_model(found), apply_overrides(node, [f"domain={found.name}"])
    try:
        settings = validate_model(model, node)
    except ConfigError as error:
        partial = validate_partially(model, node)
        raise ConfigError([*error.diagnostics, *(_inconsistencies(*partial) if partial else ())]) from None
    if errors := _inconsistencies(settings, node):
        raise ConfigError(errors)
    return settings


def _find(name: str, source: Path | str, where: SourceLocation | None, domains: Mapping[str, Domain]) -> Domain:
    """The domain that settings name; the path of its file is relative to that of the settings."""
    path = str(source.parent / name) if isinstance(source, Path) and name.endswith(".py") else name
    try:
        return domains[path]
    except TownletError as error:
        raise ConfigError(Diagnostic(d.what, d.fix, d.where or where) for d in error.diagnostics) from error


def _inconsistencies(settings: DecideSettings, node: Node) -> list[Diagnostic]:
    """Errors in combinations of values that are each valid."""
    learning, memory, promotion = settings.learning, settings.memory, settings.promotion
    total = learning.reward.actual + learning.reward.gate
    checks = (
        (abs(total - 1) > TOLERANCE + 1e-9, ("learning", "reward"),
         f"learning.reward: actual and gate sum to {total:g}", "they must sum to 1"),
        (learning.min_batch_size > learning.batch_size, ("learning", "min_batch_size"),
         f"learning.min_batch_size is {learning.min_batch_size}, but learning.batch_size is {learning.batch_size}",
         "lower min_batch_size or raise batch_size"),
        (learning.min_batch_size > memory.capacity, ("memory", "capacity"),
         f"memory.capacity is {memory.capacity}, but learning.min_batch_size is {learning.min_batch_size}: "
         "training cannot start",
         "raise capacity or lower min_batch_size"),
        (promotion.min_count > memory.held_out_capacity, ("memory", "held_out_capacity"),
         f"memory.held_out_capacity is {memory.held_out_capacity}, but promotion.min_count is {promotion.min_count}: "
         "rewards cannot be compared", "raise held_out_capacity or lower min_count"),
    )  # fmt: skip
    return [Diagnostic(what, fix, node.location_of(*path)) for wrong, path, what, fix in checks if wrong]


def settings_hash(settings: StrictModel) -> str:
    """Hash of these values, 12 hexadecimal digits."""
    text = json.dumps(settings.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:12]
