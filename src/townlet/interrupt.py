"""Whether this process has been asked to stop; signal handlers set it for code that waits for other processes."""

from __future__ import annotations

from threading import Event
from typing import Final

stop_requested: Final = Event()
