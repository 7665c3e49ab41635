"""What `townlet decide serve` prints: text for people, or JSON lines for programs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer

from townlet.cli.console import echo, echo_err, out
from townlet.cli.options import NO_TOKEN
from townlet.errors import TownletError, did_you_mean

if TYPE_CHECKING:
    from townlet.decide.app import ServiceTokens
    from townlet.decide.domain import Domain
    from townlet.web.server import Server

logger = logging.getLogger(__name__)


def log_errors(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the option `log_format`: with `json`, its errors are lines of the log."""

    @wraps(command)
    def run(*arguments: Any, log_format: str = "text", **options: Any) -> None:
        try:
            command(*arguments, log_format=log_format, **options)
        except TownletError as error:
            if log_format != "json":
                raise
            from townlet.decide.logs import log_event

            for problem in error.diagnostics:
                where = str(problem.where) if problem.where else None
                log_event(logger, "error", problem.what, logging.ERROR, fix=problem.fix, where=where)
            raise typer.Exit(error.exit_code) from error

    return run


class ServiceOutput:
    """Prints in one format; with `json`, everything is a line of the log, and no token is printed."""

    def __init__(self, format: str) -> None:
        from townlet.decide.logs import FORMATS, configure

        if format not in FORMATS:
            raise TownletError(f"--log-format {format} does not exist", did_you_mean(format, FORMATS))
        self._json, self._format = format == "json", format
        configure(format)

    def hide(self, tokens: ServiceTokens | None) -> None:
        """Remove these tokens from all messages."""
        from townlet.decide.logs import configure

        configure(self._format, tokens.tokens.values() if tokens else ())

    def note(self, event: str, text: str, style: str | None = None, **fields: Any) -> None:
        """Print a line on stderr."""
        if not self._json:
            echo_err(text, style=style)
            return
        from townlet.decide.logs import log_event

        log_event(logger, event, text, **fields)

    def announce(self, server: Server, tokens: ServiceTokens | None, domain: Domain) -> None:
        """Print addresses and tokens; without a terminal, tokens are printed only when they are generated."""
        if self._json:
            http = f"http://{server.address}{domain.http.prefix}" if domain.http else None
            source = tokens.source if tokens else None
            addresses = {"games": f"ws://{server.address}/ws", "http": http, "dashboard": f"http://{server.address}/"}
            self.note("listening", f"Listening at {server.address}.", **addresses, tokens=source, domain=domain.name)
            return
        _print_addresses(server, tokens, domain)


def _print_addresses(server: Server, service_tokens: ServiceTokens | None, domain: Domain) -> None:
    from townlet.decide.public_files import EXAMPLE_DOMAIN, EXAMPLES
    from townlet.web.tokens import GAME, ROLES

    echo(f"Games connect to ws://{server.address}/ws")
    if domain.http:
        echo(f"or send HTTP requests to http://{server.address}{domain.http.prefix}")
    link, for_games = server.link(), service_tokens.tokens.first(GAME) if service_tokens else None
    if service_tokens is None:
        echo_err(NO_TOKEN, style="yellow")
    elif service_tokens.new:
        echo(f"New tokens, stored in {service_tokens.source}:")
        echo(*(f"  {role:<8}  {service_tokens.tokens.first(role)}" for role in ROLES))
    elif not (service_tokens.stored and out().is_terminal):
        link = f"http://{server.address}/?token=… (the operator's token, from {service_tokens.source})"
        for_games = "…"
    if domain.name == EXAMPLE_DOMAIN:  # the fragment of a link is not sent to the server
        echo(f"Example game: http://{server.address}{EXAMPLES}/" + (f"#token={for_games}" if for_games else ""))
    echo(f"Dashboard: {link}  Press Ctrl-C to stop.")
    out().file.flush()
