"""`townlet live`: serve the page that shows runs, on its own or during training."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from townlet.child_processes import townlet_command
from townlet.cli.console import echo, echo_err, out
from townlet.cli.options import NO_TOKEN, ROOT, AllowCode, Host, NoToken, Root, TokenFile, port_option, program_name
from townlet.errors import TownletError

if TYPE_CHECKING:
    from townlet.runs.folder import Run
    from townlet.web.tokens import Tokens

PORT: Final = 8808
Port = Annotated[int | None, port_option(PORT)]
PARENT_SECONDS: Final = 0.5  # between looks at the parent process
NICENESS: Final = 5  # added to the server's niceness during training, which has priority


def live(
    what: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Run to show first; by default one that is training, or the latest."),
    ] = None,
    other: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Another run; its best policy is shown beside the first.")
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = None,
    token_file: TokenFile = None,
    no_token: NoToken = False,
    name: Annotated[
        list[str] | None, typer.Option(help="Another host name of this machine that browsers may use; repeatable.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    called: Annotated[str | None, typer.Option(hidden=True, help="Program name in shown commands.")] = None,
    with_parent: Annotated[bool, typer.Option(hidden=True, help="Exit when the parent process exits.")] = False,
    allow_code: AllowCode = False,
    root: Root = ROOT,
) -> None:
    """Watch runs in a browser, even while they are training.

    Prints two links. The first is the operator's: it starts and stops trainings on this machine, lets all agents play
    a tournament, and saves worlds. The second is read-only, to share with others. Neither changes or deletes finished
    runs. Ctrl-C stops the server and the trainings that were started on the page; their runs are saved.

    Every start generates new tokens unless TOWNLET_OPERATOR_TOKEN and TOWNLET_VIEWER_TOKEN or --token-file set them.
    """
    from townlet.runs.folder import Run
    from townlet.web.server import Server
    from townlet.web.tokens import VIEWER

    first = Run.open(what, root) if what else None
    second = Run.open(other, root) if other else None
    folder = runs_folder([run for run in (first, second) if run], Path(root))
    at = comparison_fragment(first, second) if first and second else ""
    server = Server(host, port, None if no_token else _tokens(token_file), name or (), default_port=PORT)
    taken = f" (port {PORT} is taken)" if port is None and server.port != PORT else ""
    echo(f"Open {server.link()}{at} in a browser{taken}. Press Ctrl-C to stop.")
    if no_token:
        echo_err(NO_TOKEN, style="yellow")
    elif not with_parent:
        echo(f"Read-only: {server.link(VIEWER)}")
        echo("Share only the second link: the first one starts trainings and saves worlds on this machine.")
    out().file.flush()
    if show:
        open_browser(server.one_time_link() + at)
    if with_parent:
        os.nice(NICENESS)
    import torch

    from townlet.live.app import make_app  # takes seconds; the link is printed before
    from townlet.live.hub import Hub

    torch.set_num_threads(1)  # policies act for single rows; more threads only wait for each other
    hub = Hub(folder, first.name if first else None, called or program_name())
    app = make_app(hub, viewers=server.descriptors.app_websockets, join_link=None if no_token else server.link(VIEWER))
    server.run(app, is_orphaned if with_parent else None)


def runs_folder(runs: Sequence[Run], root: Path) -> Path:
    """The folder of the runs; shipped agents are shown with those of any folder."""
    from townlet.runs.folder import SHIPPED

    folders = list(dict.fromkeys(run.path.parent for run in runs))
    own = [folder for folder in folders if folder != SHIPPED]
    if len(own) > 1:
        what = f"the two runs are in different folders: {own[0]} and {own[1]}"
        raise TownletError(what, "the page shows the runs of one folder; copy one of the runs into the other")
    return (own or [root])[0]


def comparison_fragment(first: Run, second: Run) -> str:
    """The fragment of a link to the page with the best policies of two runs side by side."""
    return f"#run={first.name}&agents=policy:best,policy:best@{second.name}"


def _tokens(token_file: Path | None) -> Tokens:
    """Tokens from the file or the environment; new ones for roles that have none there."""
    from townlet.web.tokens import OPERATOR, VIEWER, Tokens, environment_tokens, new_token, read_token_file

    roles = (OPERATOR, VIEWER)
    given = read_token_file(token_file, roles) if token_file else environment_tokens(roles)
    return Tokens({role: given.get(role, {role: new_token()}) for role in roles})


def is_orphaned(parent: int = os.getppid()) -> bool:
    """Whether the process that started this one has ended; the default is evaluated at import."""
    return os.getppid() != parent


def interrupt_with_parent() -> None:
    """Interrupt this process as Ctrl-C does, so that it saves its work, when the process that started it has ended."""

    def watch() -> None:
        while not is_orphaned():
            time.sleep(PARENT_SECONDS)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def open_browser(link: str) -> None:
    """Open a link in the user's browser, if there is a screen."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(link)


@contextmanager
def page_server(
    run: Run, host: str, port: int | None, show: bool = False, other: Run | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve the live page of a run, perhaps beside another one, in a separate process so that neither waits.

    Yields the link to the page and the process. The server stops at the end of the block, or when this process dies.
    With `show` it opens the page through a single-use link.
    """
    runs = [run.name, *([other.name] if other else [])]
    arguments = ["live", *runs, "--root", str(run.path.parent), "--host", host, "--called", program_name()]
    arguments += ["--with-parent", *([] if port is None else ["--port", str(port)]), *(["--open"] if show else [])]
    process = subprocess.Popen(townlet_command(*arguments), stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        first_line = process.stdout.readline().split()
        link = next((word for word in first_line if word.startswith("http")), None)
        if link is None:
            raise TownletError("the live page could not be started", "drop --live and --open, or choose another --port")
        yield link, process
    finally:
        process.terminate()
        process.stdout.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
