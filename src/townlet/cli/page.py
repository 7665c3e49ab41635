"""The page beside a training: a server in a process of its own, so that viewers never wait for it, nor it for them."""

from __future__ import annotations

import os
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from townlet.cli.opening import program
from townlet.errors import TownletError

if TYPE_CHECKING:
    from townlet.runs.folder import Run


PORT: Final = 8808


def open_page(link: str) -> None:
    """In the browser of whoever sits here; where there is no screen, the link that was printed has to do."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(link)


class Page:
    """A running server and its link."""

    def __init__(self, process: subprocess.Popen[str], link: str) -> None:
        self._process, self.link = process, link

    def wait(self) -> None:
        """Until somebody ends it."""
        self._process.wait()


@contextmanager
def page(run: Run, host: str, port: int, show: bool = False) -> Iterator[Page]:
    """Serve this run's folder of runs inside the block; the server also stops if this process is killed.

    `show` makes the server open the page in a browser, with a single-use link.
    """
    words = ["live", run.name, "--root", str(run.path.parent), "--host", host, "--port", str(port)]
    words += ["--called", program(), "--with-parent", *(["--open"] if show else [])]
    process = subprocess.Popen(
        [sys.executable, "-m", "townlet", *words], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        told = process.stdout.readline().split()
        link = next((word for word in told if word.startswith("http")), None)
        if link is None:
            raise TownletError("the page could not be started", "leave out --live, or name another --port")
        yield Page(process, link)
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
