"""`townlet live`: serve the page over runs that train and runs that are over."""

from __future__ import annotations

import os
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from townlet.cli.console import err, out
from townlet.cli.options import NO_TOKEN, ROOT, AllowCode, NoToken, Root, TokenFile, program_name
from townlet.errors import TownletError

if TYPE_CHECKING:
    from townlet.runs.folder import Run
    from townlet.web.tokens import Tokens

PORT: Final = 8808
NICE: Final = 5  # beside a training: who learns goes before who watches


def live(
    what: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The run to show first, the latest by default.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Which port, or one of the next that is free.")] = PORT,
    token_file: TokenFile = None,
    no_token: NoToken = False,
    name: Annotated[
        list[str] | None, typer.Option(help="Another name that browsers know this machine by; may be repeated.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    called: Annotated[str | None, typer.Option(hidden=True, help="What to type for `townlet`.")] = None,
    with_parent: Annotated[bool, typer.Option(hidden=True, help="End when the process that started it ends.")] = False,
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Watch runs in a browser, also while they train.

    Ctrl-C stops it. The page cannot change a run. The first link can also save worlds; the second is read-only. Tokens
    are new at every start unless TOWNLET_OPERATOR_TOKEN and TOWNLET_VIEWER_TOKEN or --token-file set them.
    """
    from townlet.runs.folder import Run
    from townlet.web.server import Server
    from townlet.web.tokens import VIEWER

    runs = Run.list(Path(root))
    first = Run.open(what, root) if what else runs[-1] if runs else None
    server = Server(host, port, None if no_token else _tokens(token_file), name or ())
    taken = f" (port {port} is taken)" if port not in (0, server.port) else ""
    out().print(f"Open {server.link()} in a browser{taken}. Ctrl-C ends it.", soft_wrap=True)
    if no_token:
        err().print(NO_TOKEN, style="yellow", soft_wrap=True)
    elif not with_parent:
        out().print(f"Read-only: {server.link(VIEWER)}", soft_wrap=True)
    out().file.flush()
    if show:
        open_browser(server.one_time_link())
    if with_parent:
        os.nice(NICE)
    from townlet.live.app import make_app  # takes seconds, and the link is told already
    from townlet.live.hub import Hub

    hub = Hub(first.path.parent if first else Path(root), first.name if first else None, called or program_name())
    server.run(make_app(hub, viewers=server.descriptors.app_websockets), orphaned if with_parent else None)


def _tokens(token_file: Path | None) -> Tokens:
    """Tokens from the file or the environment; new ones for roles that are not set there."""
    from townlet.web.tokens import OPERATOR, VIEWER, Tokens, environment_tokens, new_token, read_token_file

    roles = (OPERATOR, VIEWER)
    given = read_token_file(token_file, roles) if token_file else environment_tokens(roles)
    return Tokens({role: given.get(role, {role: new_token()}) for role in roles})


def orphaned(parent: int = os.getppid()) -> bool:
    """Whether the process that started this one is gone."""
    return os.getppid() != parent


def open_browser(link: str) -> None:
    """In the browser of whoever sits here; where there is no screen, the link that was printed has to do."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(link)


class PageServer:
    """A running server and its link."""

    def __init__(self, process: subprocess.Popen[str], link: str) -> None:
        self._process, self.link = process, link

    def wait(self) -> None:
        """Until somebody ends it."""
        self._process.wait()


@contextmanager
def page_server(run: Run, host: str, port: int, show: bool = False) -> Iterator[PageServer]:
    """Serve this run's folder of runs inside the block; the server also stops if this process is killed.

    `show` makes the server open the page in a browser, with a single-use link.
    """
    words = ["live", run.name, "--root", str(run.path.parent), "--host", host, "--port", str(port)]
    words += ["--called", program_name(), "--with-parent", *(["--open"] if show else [])]
    process = subprocess.Popen(
        [sys.executable, "-m", "townlet", *words], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        told = process.stdout.readline().split()
        link = next((word for word in told if word.startswith("http")), None)
        if link is None:
            raise TownletError("the page could not be started", "leave out --live, or name another --port")
        yield PageServer(process, link)
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
