"""OpenTelemetry traces: a span for each message and its parts, for training steps, and for promotions.

Off unless `OTEL_EXPORTER_OTLP_ENDPOINT` is set and the package is installed; then nothing of it is imported.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from townlet._version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
SERVICE_NAME: Final = "OTEL_SERVICE_NAME"
logger = logging.getLogger(__name__)

Mark = Callable[[str], None]  # called at the end of each part of a message, with its name
_tracer: Any = None  # None: off
_provider: TracerProvider | None = None


def no_mark(part: str) -> None:
    """Used for a message without a trace."""


def configure_from_environment() -> None:
    """Turn traces on if an endpoint is set."""
    if not os.environ.get(ENDPOINT):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        logger.warning("%s is set, but there are no traces without: pip install 'townlet[otel]'", ENDPOINT)
        return
    configure(BatchSpanProcessor(OTLPSpanExporter()))


def configure(processor: SpanProcessor) -> None:
    """Turn traces on and send them to a processor. The standard variables OTEL_… apply, such as OTEL_TRACES_SAMPLER."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    global _tracer, _provider
    name = os.environ.get(SERVICE_NAME, "townlet-decide")
    _provider = TracerProvider(resource=Resource.create({"service.name": name, "service.version": __version__}))
    _provider.add_span_processor(processor)
    _tracer = _provider.get_tracer("townlet.decide", __version__)


def shut_down() -> None:
    """Send what is left, and turn traces off."""
    global _tracer, _provider
    provider, _tracer, _provider = _provider, None, None
    if provider is not None:
        provider.shutdown()


class MessageTrace:
    """The span of one message, whose parts are added when the answer has been sent."""

    def __init__(self, kind: str, size: int) -> None:
        self._tracer, self._begun = _tracer, time.time_ns()
        self._span = self._tracer.start_span(
            "message", start_time=self._begun, attributes={"message.type": kind, "message.size": size}
        )
        self._parts: list[tuple[str, int]] = []

    def mark(self, part: str) -> None:
        """A part ends now; it began where the one before ended. Called in any thread, one at a time."""
        self._parts.append((part, time.time_ns()))

    def end(self, reply: Mapping[str, Any]) -> None:
        """The answer has been sent."""
        from opentelemetry.trace import set_span_in_context

        self.mark("answer")
        begun = self._begun
        if self._span.is_recording():
            context = set_span_in_context(self._span)
            for part, ended in self._parts:
                self._tracer.start_span(part, context, start_time=begun).end(ended)
                begun = ended
            for name, attribute in (("type", "reply.type"), ("code", "reply.code"), ("modelVersion", "reply.version")):
                if name in reply:
                    self._span.set_attribute(attribute, reply[name])
        self._span.end(self._parts[-1][1])


def trace_message(kind: str, size: int) -> MessageTrace | None:
    """Begin the trace of a message; None if traces are off."""
    return MessageTrace(kind, size) if _tracer is not None else None


@contextmanager
def span(name: str, **attributes: Any) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A span around a block, which may add attributes by calling the value."""
    tracer = _tracer
    if tracer is None:
        yield _no_attributes
        return
    with tracer.start_as_current_span(name, attributes=attributes) as current:
        yield lambda more: current.set_attributes({key: value for key, value in more.items() if value is not None})


def _no_attributes(attributes: Mapping[str, Any]) -> None:
    """Used while traces are off."""
