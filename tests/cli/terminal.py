"""Run the program in a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import sys
import termios
import time
from collections.abc import Sequence

import warm


def at_a_terminal(
    arguments: Sequence[str], keys: Sequence[str] = (), columns: int = 170, once: bytes = b"quit"
) -> tuple[int, str]:
    """Run the program at a terminal and press keys once it has printed `once`; returns exit code and output."""
    far, near = pty.openpty()
    termios.tcsetwinsize(near, (40, columns))
    command = [sys.executable, "-m", "townlet", *arguments]
    program = warm.Popen(command, terminal=True, stdin=near, env=os.environ | {"TERM": "xterm-256color"})
    os.close(near)
    seen, waiting, pressed = b"", list(keys), 0.0
    deadline = time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            if select.select([far], [], [], 0.1)[0]:
                try:
                    seen += os.read(far, 65536)
                except OSError:  # the program has ended
                    break
            if waiting and once in seen and time.monotonic() - pressed > 0.3:
                os.write(far, waiting.pop(0).encode())
                pressed = time.monotonic()
        return program.wait(timeout=30), seen.decode(errors="replace")
    finally:
        program.kill()
        program.wait()
        os.close(far)
