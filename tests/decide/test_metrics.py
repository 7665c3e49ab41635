"""/metrics: conventions, values, the documented table, and the alert rules."""

from __future__ import annotations

import asyncio
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from decide.service_process import VIEWER, Process
from townlet.decide.domains import DOMAINS
from townlet.decide.metrics import METRICS, PREFIX
from townlet.decide.simulate import simulate

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = re.compile(r'([a-z_]+)(\{(?:[a-z_]+="[^"\n]*",?)+\})? (-?[0-9][0-9.e+-]*)')
NAME = re.compile(rf"{PREFIX}[a-z_]+")
# Units other than the base units, and names that repeat the type.
UNCONVENTIONAL = re.compile(r"(milliseconds|_ms|minutes|percent|kilobytes|_gauge|_counter)")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The lines of /metrics of a service that has learned."""
    words = ("learning.interval=0.02", "learning.samples_per_insert=100")
    server = Process(tmp_path_factory.mktemp("metrics") / "service", "bandit-ads", *words).start().wait()
    asyncio.run(simulate(server.url, [DOMAINS["bandit-ads"].make_game(1, "measured", 0)], 100))
    asked = urllib.request.Request(f"{server.origin}/metrics", headers={"Authorization": f"Bearer {VIEWER}"})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        yield answer.read().decode().splitlines()
    server.end(signal.SIGTERM)


def values(lines: list[str]) -> dict[str, float]:
    found = [SAMPLE.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(found), lines
    return {match[1] + (match[2] or ""): float(match[3]) for match in found if match}


def test_documented_table_is_what_the_endpoint_exports(exported: list[str]) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    documented = re.findall(rf"^\| `({PREFIX}[a-z_]+)` \| (\w+) \| (.+) \|$", text, re.MULTILINE)
    meanings = dict(line.removeprefix("# HELP ").split(" ", 1) for line in exported if line.startswith("# HELP"))
    kinds = dict(line.removeprefix("# TYPE ").split(" ", 1) for line in exported if line.startswith("# TYPE"))
    assert documented == [(name, kinds[name], meaning) for name, meaning in meanings.items()]
    assert len(set(meanings)) == len(documented) == len(METRICS)


def test_names_follow_the_conventions(exported: list[str]) -> None:
    kinds = {metric.name: metric.kind for metric in METRICS}
    for name, kind in kinds.items():
        assert name.endswith("_total") == (kind == "counter"), name
        assert not UNCONVENTIONAL.search(name), name
    for sample in values(exported):
        family = re.sub(r"\{.*|_sum$|_count$", "", sample).removeprefix(PREFIX)
        assert family in kinds
        if family.endswith("_ratio"):
            assert 0 <= values(exported)[sample] <= 1


def test_values_are_consistent(exported: list[str]) -> None:
    found = {name.removeprefix(PREFIX): value for name, value in values(exported).items()}
    parts = ("joined_total", "expired_total", "pending", "waited_total", "failed_total")
    assert found["decisions_total"] == sum(found[f"decisions_{part}"] for part in parts) == 100
    assert found["process_decisions_total"] == found["latency_seconds_count"] == 100
    assert 0 < found['latency_seconds{quantile="0.5"}'] <= found['latency_seconds{quantile="0.99"}']
    assert found["latency_seconds_sum"] >= 50 * found['latency_seconds{quantile="0.5"}']
    assert found["training_steps_total"] > 0
    assert found["training_agreed_total"] == found["training_validated_total"] == found["training_samples_total"]
    assert found["training_agreement_ratio"] == found["leader"] == found["storage_available"] == 1
    assert found['info{domain="bandit-ads",policy="clicks"}'] == 1
    assert found["version_serving"] >= 1


def test_alert_rules_use_existing_metrics() -> None:
    rules = YAML(typ="safe").load((ROOT / "deploy" / "alerts.yaml").read_text(encoding="utf-8"))
    every = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in every}) == len(every) > 10
    names = {f"{PREFIX}{metric.name}" for metric in METRICS}
    for rule in every:
        assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"].endswith(".")
        used = set(NAME.findall(rule["expr"]))
        assert used <= names
        assert used or rule["expr"].startswith("up{")
        assert rule["expr"].count("(") == rule["expr"].count(")")
