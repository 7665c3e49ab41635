"""OpenTelemetry traces, in memory and sent to a collector."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from decide.ads_service import click, request, run_visits, start_service
from decide.test_commands import Captured
from townlet.decide import tracing
from townlet.decide.batcher import Batcher
from townlet.decide.websocket import GamePort

export = pytest.importorskip("opentelemetry.sdk.trace.export")
PARTS = [  # of a decision, a report, and a refused observation
    ["queue", "parse", "decide", "commit", "answer"],
    ["queue", "parse", "commit", "answer"],
    ["queue", "parse", "commit", "answer"],
]
PATIENT = 60.0


@pytest.fixture
def spans() -> Iterator[Any]:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    tracing.configure(export.SimpleSpanProcessor(exporter))
    yield exporter.get_finished_spans
    tracing.shut_down()


def test_message_has_a_span_with_its_parts(tmp_path: Path, spans: Any) -> None:
    service, _, _ = start_service(tmp_path)

    async def play() -> list[dict[str, Any]]:
        batcher = Batcher(service)
        port = GamePort(lambda: batcher)
        decision = await port.send(request(1.0), 200, "game", "key")
        report = await port.send(click(decision["decisionId"]), 80, "game", "key")
        return [decision, report, await port.send({"type": "ad_request"}, 20, "game", "key")]

    decision, _, error = asyncio.run(play())
    service.storage.close()
    assert error["code"] == "INVALID_OBSERVATION"
    messages = [span for span in spans() if span.name == "message"]
    assert [span.attributes["message.type"] for span in messages] == ["ad_request", "click_report", "ad_request"]
    assert [span.attributes["reply.type"] for span in messages] == [decision["type"], "outcome_ack", "error"]
    assert messages[0].attributes["reply.version"] == decision["modelVersion"]
    assert messages[2].attributes["reply.code"] == "INVALID_OBSERVATION"
    for message, parts in zip(messages, PARTS, strict=True):
        children = [span for span in spans() if span.parent and span.parent.span_id == message.context.span_id]
        assert [span.name for span in children] == parts
        times = [message.start_time, *(span.end_time for span in children)]
        assert times == sorted(times)
        assert [span.start_time for span in children] == times[:-1]
        assert message.end_time == times[-1]
        assert not any("token" in str(span.attributes) for span in children)


def test_training_steps_and_promotions_have_spans(tmp_path: Path, spans: Any) -> None:
    service, training, clock = start_service(tmp_path)
    run_visits(service, training, clock, 80)
    service.storage.close()
    steps = [span for span in spans() if span.name == "training_step"]
    assert [span.attributes["step"] for span in steps] == list(range(1, training.progress.steps + 1))
    assert all({"batch", "loss", "agreement"} <= span.attributes.keys() for span in steps)
    promotions = [span for span in spans() if span.name == "promotion"]
    assert [span.attributes["version"] for span in promotions] == list(range(1, len(promotions) + 1))
    verdicts = [span.attributes["verdict"] for span in promotions]
    assert verdicts[0] == "promote"
    assert len(verdicts) == sum(training.progress.verdicts.values()) > 1


class Collector(BaseHTTPRequestHandler):
    """Receives traces as an OpenTelemetry collector does."""

    received: list[bytes]

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        self.received.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


class Traced(Captured):
    """A service that sends traces."""

    endpoint = ""

    def environment(self) -> dict[str, str]:
        return super().environment() | {tracing.ENDPOINT: self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}


def test_service_sends_traces_to_a_collector(tmp_path: Path) -> None:
    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    Collector.received = []
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    service = Traced(tmp_path / "ads", "bandit-ads", "learning.interval=0.05")
    service.endpoint = f"http://127.0.0.1:{collector.server_port}"
    service.start().wait()
    from websockets.sync.client import connect

    with connect(service.url, proxy=None) as socket:
        for second in range(20):
            socket.send(json.dumps(request(float(second))))
            assert json.loads(socket.recv(20))["type"] != "error"
    until = time.monotonic() + PATIENT
    names = (b"message", b"parse", b"decide", b"commit", b"answer", b"promotion", b"townlet-decide")
    while not all(any(name in body for body in Collector.received) for name in names):
        assert time.monotonic() < until, service.words
        time.sleep(0.05)
    service.end(signal.SIGTERM)
    collector.shutdown()
    collector.server_close()
    assert "Traceback" not in service.words


def test_without_an_endpoint_nothing_is_imported() -> None:
    code = (
        "import sys; from townlet.decide import tracing, websocket; tracing.configure_from_environment();"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    environment = {name: value for name, value in os.environ.items() if name != tracing.ENDPOINT}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "[]"


def test_missing_package_is_reported_and_the_service_runs_without_traces(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(tracing.ENDPOINT, "http://127.0.0.1:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    tracing.configure_from_environment()
    assert "pip install 'townlet[otel]'" in caplog.text
    assert tracing.trace_message("ping", 16) is None
