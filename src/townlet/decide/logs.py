"""Messages of the service: lines of text, or one JSON object per line. Secrets are removed from both."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

FORMATS: Final = ("text", "json")
NO_EVENT: Final = "message"  # event of a record that names none
REMOVED: Final = "[removed]"
# Passwords in URLs, also with characters that should be encoded, tokens in URLs, and tokens in headers.
SECRETS: Final = re.compile(r"(?<=://)([^\s/@:]*):\S+(?=@)|\b(token|code)=[^\s&\"']+|\b(Bearer) [^\s\"']+", re.I)


def configure(format: str, secrets: Iterable[str] = ()) -> None:
    """Send all messages of this process to stderr in a format; `secrets` never appear in them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter((JsonFormatter if format == "json" else TextFormatter)(secrets))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("townlet").setLevel(logging.INFO)


def log_event(logger: logging.Logger, event: str, text: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log a message; `event` names its kind for programs, `fields` are its values."""
    logger.log(level, "%s", text, extra={"event": event, "fields": fields})


class TextFormatter(logging.Formatter):
    """The message, and the traceback of an unexpected error."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        known = [re.escape(secret) for secret in secrets if secret]
        self._known = re.compile("|".join(known)) if known else None

    def format(self, record: logging.LogRecord) -> str:
        return self.remove_secrets(super().format(record))

    def remove_secrets(self, text: str) -> str:
        """The text without tokens and passwords."""
        if self._known is not None:
            text = self._known.sub(REMOVED, text)
        return SECRETS.sub(_without_value, text)


class JsonFormatter(TextFormatter):
    """One object per line: time, level, event, logger, message, fields, and the traceback of an unexpected error."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", NO_EVENT),
            "logger": record.name,
            "message": self.remove_secrets(record.getMessage()),
            "fields": self._clean(getattr(record, "fields", {})),
        }
        if record.exc_info:
            entry["traceback"] = self.remove_secrets(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False, default=str)

    def _clean(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._clean(part) for name, part in value.items()}
        return self.remove_secrets(value) if isinstance(value, str) else value


def _without_value(found: re.Match[str]) -> str:
    user, parameter, scheme = found.groups()
    if parameter:
        return f"{parameter}={REMOVED}"
    return f"{scheme} {REMOVED}" if scheme else f"{user}:{REMOVED}"
