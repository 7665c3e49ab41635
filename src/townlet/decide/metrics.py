"""Metrics for Prometheus: the table of all metrics, and their values in the text format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

PREFIX: Final = "townlet_decide_"
CONTENT_TYPE: Final = "text/plain; version=0.0.4"

Stats = Mapping[str, Any]  # as of `ServiceStats.as_json`
Sample = tuple[str, Mapping[str, Any], float]  # suffix of the name, labels, value


class Family(NamedTuple):
    """A family of samples: its name without the prefix, its type, its meaning, and where its samples come from."""

    name: str
    kind: str
    meaning: str
    samples: Callable[[Stats], Iterator[Sample]]


def _value(path: str) -> Callable[[Stats], Iterator[Sample]]:
    """One sample: the number at this path, if it is known."""

    def samples(stats: Stats) -> Iterator[Sample]:
        value = _at(stats, path)
        if value is not None:
            yield "", {}, float(value)

    return samples


def _each(path: str, label: str) -> Callable[[Stats], Iterator[Sample]]:
    """One sample for each entry of the mapping at this path."""

    def samples(stats: Stats) -> Iterator[Sample]:
        return (("", {label: name}, float(value)) for name, value in _at(stats, path).items())

    return samples


def _at(stats: Stats, path: str) -> Any:
    value: Any = stats
    for name in path.split("."):
        value = value[name]
    return value


def _info(stats: Stats) -> Iterator[Sample]:
    yield "", {name: stats["service"][name] for name in ("domain", "policy")}, 1.0


def _storage(stats: Stats) -> Iterator[Sample]:
    yield "", {}, float(not stats["service"]["problem"])


def _rejected(stats: Stats) -> Iterator[Sample]:
    reasons = ("duplicates", "late", "unknown", "contradicting")
    return (("", {"reason": reason}, float(stats["buffer"][reason])) for reason in reasons)


def _pending_age(stats: Stats) -> Iterator[Sample]:
    return (("", {"which": which}, stats["buffer"][f"{which}_pending"]) for which in ("oldest", "mean"))


def _newest_version(stats: Stats) -> Iterator[Sample]:
    stored = stats["versions"]["versions"]
    yield "", {}, float(stored[-1]["version"] if stored else 0)


def _pinned_version(stats: Stats) -> Iterator[Sample]:
    yield "", {}, float(stats["versions"]["pinned"] or 0)


def _latency(stats: Stats) -> Iterator[Sample]:
    process = stats["process"]
    for quantile, milliseconds in (("0.5", process["p50_ms"]), ("0.99", process["p99_ms"])):
        if milliseconds is not None:
            yield "", {"quantile": quantile}, milliseconds / 1000
    yield "_sum", {}, process["latency_sum_seconds"]
    yield "_count", {}, float(process["answered"])


def _alarms(stats: Stats) -> Iterator[Sample]:
    for alarm in stats["alarms"]:
        yield "", {"name": alarm["name"], "critical": str(alarm["critical"]).lower()}, 1.0


def _processes(stats: Stats) -> Iterator[Sample]:
    roles = [process["role"] for process in stats["processes"]]
    return (("", {"role": role}, float(roles.count(role))) for role in sorted(set(roles)))


# In the order of docs/metrics.md.
OWN: Final = (
    Family("info", "gauge", "Always 1; the domain and the policy are labels.", _info),
    Family("uptime_seconds", "gauge", "Time since the start of the process.", _value("service.uptime_seconds")),
    Family("storage_available", "gauge", "1 while the log or the database can be written, else 0.", _storage),
    Family("leader", "gauge", "1 if this process trains, else 0.", _value("service.learns")),
    Family("version_serving", "gauge", "Version that this process serves; 0: none.", _value("service.version")),
    Family("game_connections", "gauge", "WebSockets of games.", _value("service.games")),
    Family("dashboard_connections", "gauge", "WebSockets of dashboards.", _value("service.dashboards")),
    Family("process_decisions_total", "counter", "Decisions made by this process.", _value("process.decisions")),
    Family("latency_seconds", "summary",
           "Time from the arrival of an observation to its answer; quantiles of the last 1000.", _latency),
    Family("waiting_observations", "gauge", "Observations in the queue.", _value("process.waiting")),
    Family("overloaded_total", "counter", "Observations refused or answered by the gate alone because of overload.",
           _value("process.overloaded")),
    Family("alarm", "gauge", "1 for each active alarm; the labels are its name and whether it is critical.", _alarms),
)  # fmt: skip
SHARED: Final = (
    Family("processes", "gauge", "Processes of a service in a database, by role.", _processes),
    Family("gate_only", "gauge", "1 while an operator lets the gate decide alone.", _value("service.gate_only")),
    Family("version_newest", "gauge", "Newest stored version.", _newest_version),
    Family("version_pinned", "gauge", "Pinned version; 0: none.", _pinned_version),
    Family("decisions_total", "counter", "Decisions.", _value("buffer.decisions")),
    Family("decisions_joined_total", "counter", "Decisions joined with their outcome.", _value("buffer.joined")),
    Family("decisions_expired_total", "counter", "Decisions that expired without an outcome.",
           _value("buffer.expired")),
    Family("decisions_waited_total", "counter", "Decisions that the gate did not send.", _value("buffer.waited")),
    Family("decisions_failed_total", "counter", "Decisions that the game could not carry out.",
           _value("buffer.failed")),
    Family("decisions_pending", "gauge", "Decisions that await their outcome.", _value("buffer.pending")),
    Family("pending_age_seconds", "gauge", "Age of pending decisions, oldest and mean.", _pending_age),
    Family("reports_rejected_total", "counter", "Reports that were not counted, by reason.", _rejected),
    Family("outcomes_total", "counter", "Outcomes that can be learned from.", _value("buffer.completed")),
    Family("reward_mean", "gauge", "Mean reward of all outcomes.", _value("decisions.mean_actual")),
    Family("reward_recent_mean", "gauge", "Mean reward of the last 500 outcomes.", _value("decisions.actual_recent")),
    Family("reward_first_mean", "gauge", "Mean reward of the first 500 outcomes.", _value("decisions.actual_first")),
    Family("reward_expected_mean", "gauge", "Mean of the gate's estimates of the same decisions.",
           _value("decisions.mean_expected")),
    Family("entropy_ratio", "gauge", "Mean normalized entropy of recent decisions: 1 is uniform.",
           _value("decisions.entropy")),
    Family("gate_pass_ratio", "gauge", "Share of recent decisions that the gate sent.", _value("gate.pass_rate")),
    Family("gate_reasons_total", "counter", "Decisions by the gate's reason.", _each("gate.reasons", "reason")),
    Family("gate_component_mean", "gauge", "Mean of each component of the gate's estimate, of recent decisions.",
           _each("gate.components", "component")),
    Family("replay_buffer_size", "gauge", "Experiences in the replay buffer.", _value("buffer.size")),
    Family("replay_buffer_capacity", "gauge", "Its capacity.", _value("buffer.capacity")),
    Family("held_out_size", "gauge", "Experiences held out for evaluation.", _value("buffer.held_out")),
    Family("training_enabled", "gauge", "Setting learning.enabled.", _value("training.enabled")),
    Family("training_validate", "gauge", "Setting learning.validate.", _value("training.validate")),
    Family("training_running", "gauge", "1 while the training thread runs.", _value("training.running")),
    Family("training_steps_total", "counter", "Training steps since the first start of the service.",
           _value("training.step")),
    Family("training_samples_total", "counter", "Experiences trained on.", _value("training.samples")),
    Family("training_validated_total", "counter", "Of these, the ones that the current gate rated again.",
           _value("training.validated")),
    Family("training_agreed_total", "counter", "Of these, the ones on which the current gate agrees.",
           _value("training.agreed")),
    Family("training_slow_steps_total", "counter", "Steps that took longer than learning.interval.",
           _value("training.slow")),
    Family("training_failures_total", "counter", "Failed training rounds.", _value("training.failed")),
    Family("training_loss", "gauge", "Loss, mean of the last 100 steps.", _value("training.means.loss")),
    Family("training_batch_size", "gauge", "Batch size, mean of the last 100 steps.", _value("training.means.batch")),
    Family("training_step_seconds", "gauge", "Time of a step, mean of the last 100.",
           _value("training.means.step_seconds")),
    Family("training_agreement_ratio", "gauge", "Share on which the current gate agrees, mean of the last 100 steps.",
           _value("training.means.agreement")),
    Family("training_reward", "gauge", "Mean training reward of the last batch.", _value("training.reward")),
    Family("training_grad_norm", "gauge", "Gradient norm of the last step.", _value("training.grad_norm")),
    Family("versions_evaluated_total", "counter", "Evaluated versions, by verdict.",
           _each("training.verdicts", "verdict")),
)  # fmt: skip
METRICS: Final = OWN + SHARED


def as_prometheus(stats: Stats) -> str:
    """All metrics in the text format; unknown values are left out."""
    lines = []
    for metric in METRICS:
        name = PREFIX + metric.name
        lines += [f"# HELP {name} {metric.meaning}", f"# TYPE {name} {metric.kind}"]
        for suffix, labels, value in metric.samples(stats):
            shown = ",".join(f'{label}="{_escape(str(text))}"' for label, text in labels.items())
            lines.append(f"{name}{suffix}{f'{{{shown}}}' if shown else ''} {_number(value)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
