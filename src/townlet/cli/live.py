"""`townlet live`: serve the page over runs that train and runs that are over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from townlet.cli.console import err, out
from townlet.cli.opening import program
from townlet.cli.options import NO_TOKEN, ROOT, AllowCode, NoToken, Root, TokenFile
from townlet.cli.page import PORT, open_page

if TYPE_CHECKING:
    from townlet.web.tokens import Tokens

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
        open_page(server.one_time_link())
    if with_parent:
        os.nice(NICE)
    from townlet.live.app import make_app  # takes seconds, and the link is told already
    from townlet.live.hub import Hub

    house = Hub(first.path.parent if first else Path(root), first.name if first else None, called or program())
    server.run(make_app(house, viewers=server.descriptors.app_websockets), orphaned if with_parent else None)


def _tokens(token_file: Path | None) -> Tokens:
    """Tokens from the file or the environment; new ones for roles that are not set there."""
    from townlet.web.tokens import OPERATOR, VIEWER, Tokens, environment_tokens, new_token, read_token_file

    roles = (OPERATOR, VIEWER)
    given = read_token_file(token_file, roles) if token_file else environment_tokens(roles)
    return Tokens({role: given.get(role, {role: new_token()}) for role in roles})


def orphaned(parent: int = os.getppid()) -> bool:
    """Whether the process that started this one is gone."""
    return os.getppid() != parent
