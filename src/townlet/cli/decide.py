"""`townlet decide new`, `serve` and `simulate`: describe a game, decide for it and learn, and play it."""

from __future__ import annotations

import gc
import json
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from townlet.cli.console import echo, echo_err, out
from townlet.cli.decide_options import FOLDER, AllowCode, Folder, TokenFile, app, require_url
from townlet.cli.decide_output import ServiceOutput, log_errors
from townlet.cli.help import FormattedCommand
from townlet.cli.live import open_browser
from townlet.cli.options import AsJson, Host, NoToken, port_option
from townlet.decide import MAX_GAMES
from townlet.errors import TownletError, did_you_mean

if TYPE_CHECKING:
    from townlet.decide.service import Service

PORT: Final = 8780
LOG_EVERY: Final = 1000  # training steps, about a quarter of an hour with the default settings
SERVE_OPTIONS: Final = ("port", "host", "origin", "folder", "open", "storage", "role", "log-format", "log-every")
ROLES: Final = ("all", "decide", "learn")


class DomainCommand(FormattedCommand):
    """A command whose help page lists the domains."""

    def note(self) -> str:
        from townlet.decide.installed import installed_domains

        packages = ", ".join(sorted(installed_domains()))
        return "Domains: bandit-ads, hive, rank" + (f"; from installed packages: {packages}." if packages else ".")


@app.with_examples("townlet decide new my-game", "townlet decide serve my-game.py --allow-code")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the domain, such as my-game, or a path.")],
) -> None:
    """Write the file of your own domain: a small example that learns.

    It contains a simulated game. Replace its parts by those of your own game.
    """
    from townlet.decide.new_domain import write_example

    path = write_example(name)
    file = shlex.quote(str(path))
    echo(f"Wrote {path}. Serve it, and play its simulated game from another terminal:")
    echo(f"  townlet decide serve {file} --allow-code")
    echo(f"  townlet decide simulate {file} --allow-code")


@app.with_examples(
    "townlet decide serve hive",
    "townlet decide serve hive learning.interval=.5 --folder night",
    "townlet decide serve my-game.py --allow-code",
    "townlet decide serve my-game.yaml --origin https://play.example",
    "townlet decide serve hive --host 0.0.0.0 --token-file tokens.yaml",
    cls=DomainCommand,
)
@log_errors
def serve(
    what: Annotated[
        str,
        typer.Argument(
            metavar="DOMAIN|FILE", help="A domain, the Python file of your own domain, or a YAML file of settings."
        ),
    ] = "hive",
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Overrides of the settings, such as learning.interval=.5."),
    ] = None,
    folder: Folder = FOLDER,
    host: Host = "127.0.0.1",
    port: Annotated[int | None, port_option(PORT)] = None,
    token_file: TokenFile = None,
    no_token: NoToken = False,
    origin: Annotated[
        list[str] | None, typer.Option(help="Allow web pages of this origin to connect as games; repeatable.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the dashboard in your browser.")] = False,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="Store in PostgreSQL instead of FOLDER: postgresql://…")
    ] = None,
    role: Annotated[
        str, typer.Option(metavar="ROLE", help="With --storage: decide, learn, or all; one learner leads.")
    ] = "all",
    log_format: Annotated[
        str, typer.Option(metavar="FORMAT", help="Messages as text, or as json: one object per line, on stderr.")
    ] = "text",
    log_every: Annotated[
        int, typer.Option(metavar="N", min=0, help="Log a line every N training steps; 0: none.")
    ] = LOG_EVERY,
    accept_data_loss: Annotated[
        bool, typer.Option("--accept-data-loss", help="Start even if log records are missing or damaged.")
    ] = False,
    allow_code: AllowCode = False,
) -> None:
    """Answer the observations of games and learn continuously.

    Ctrl-C stops the service. Everything it has acknowledged is on disk; the next start continues from there.

    Games, operators and viewers have separate tokens. The first start generates them in FOLDER/tokens.json; to choose
    them, use --token-file or TOWNLET_GAME_TOKEN, TOWNLET_OPERATOR_TOKEN and TOWNLET_VIEWER_TOKEN.
    """
    output = ServiceOutput(log_format)
    for override in overrides or ():  # suggest --port 8790 for port=8790
        key, equals, value = override.partition("=")
        if equals and key.strip() in SERVE_OPTIONS:
            shown = {"open": "", "storage": " URL"}.get(key.strip(), f" {value}")  # the URL may contain a password
            fix = f"write --{key.strip()}{shown}"
            raise TownletError(f"'{key.strip()}' is an option, not a setting", fix)
    _check_storage(storage, role, accept_data_loss)
    from townlet.decide import tracing
    from townlet.decide.app import load_service_tokens, open_app, open_shared_app, service_access
    from townlet.decide.domains import DOMAINS
    from townlet.decide.settings import load_settings
    from townlet.web.server import Server

    source = Path(what) if what.endswith((".yaml", ".yml")) else what
    settings = load_settings(source, overrides or (), DOMAINS)
    service_tokens = None if no_token else load_service_tokens(folder, token_file)
    output.hide(service_tokens)
    tracing.configure_from_environment()
    tokens = service_tokens.tokens if service_tokens else None
    access = service_access(DOMAINS[settings.domain])
    server = Server(
        host, port, tokens, origins=origin or (), allow_no_origin=True, log_config=None, default_port=PORT, **access
    )
    if port is None and server.port != PORT:
        output.note("port_taken", f"Port {PORT} is taken; listening on port {server.port}.", port=server.port)
    if storage is None:
        output.note("opening", f"Opening {folder} …", folder=str(folder))  # replaying a long log takes seconds
        application = open_app(folder, settings, accept_data_loss, server.descriptors, log_every)
    else:
        application = open_shared_app(storage, settings, role, server.descriptors, log_every)
    gc.collect()
    gc.freeze()  # a full collection of the objects made so far would pause every game for 140 ms
    output.announce(server, service_tokens, DOMAINS[settings.domain])
    if show:
        open_browser(server.one_time_link())
    server.run(application)
    tracing.shut_down()
    if storage is not None:
        return
    service: Service = application.state.batcher.service
    serving, problem = service.versions.serving, service.storage.problem
    saved = f"Saved, except for the last records: {problem}." if problem else "Saved."
    served = f"Version {serving.version} served" if serving else "No version served"
    decisions = service.storage.counts().decisions
    output.note("stopped", f"{saved} {served}; {folder} holds {decisions:,} decisions.", decisions=decisions)
    if problem:  # the log could not be written to the end
        raise typer.Exit(1)


def _check_storage(storage: str | None, role: str, accept_data_loss: bool) -> None:
    if role not in ROLES:
        raise TownletError(f"--role {role} does not exist", did_you_mean(role, ROLES))
    if storage is None:
        if role != "all":
            raise TownletError(f"--role {role} needs --storage", "one process can serve a folder; it does everything")
        return
    require_url(storage)
    if accept_data_loss:
        raise TownletError("--accept-data-loss is for a folder", "restore a backup of the database instead")


@app.with_examples(
    "townlet decide simulate hive",
    "townlet decide simulate hive --games 20 --observations 500 --stage 2",
    "townlet decide simulate hive --duplicates .1 --losses .05 --reconnects .01",
    cls=DomainCommand,
)
def simulate(
    domain: Annotated[
        str, typer.Argument(metavar="DOMAIN|FILE", help="The domain to simulate, or the Python file of your own.")
    ] = "hive",
    url: Annotated[str, typer.Option(help="Address of the service.")] = f"ws://127.0.0.1:{PORT}/ws",
    folder: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of a local service, to read its tokens.")
    ] = FOLDER,
    token_file: TokenFile = None,
    games: Annotated[int, typer.Option(min=1, max=MAX_GAMES, help="Simultaneous games, one connection each.")] = 4,
    observations: Annotated[int, typer.Option(min=1, help="Observations per game.")] = 200,
    stage: Annotated[int, typer.Option(min=0, help="Difficulty of hive, 0 to 2; others ignore it.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the games and the network faults.")] = 0,
    name: Annotated[str | None, typer.Option(help="Prefix of the territory names; random by default.")] = None,
    pause: Annotated[float, typer.Option(min=0, help="Seconds between two decisions.")] = 0.0,
    duplicates: Annotated[float, typer.Option(min=0, max=1, help="Fraction of messages sent twice.")] = 0.0,
    reordering: Annotated[float, typer.Option(min=0, max=1, help="Fraction of reports that arrive late.")] = 0.0,
    losses: Annotated[float, typer.Option(min=0, max=1, help="Fraction of lost reports.")] = 0.0,
    reconnects: Annotated[
        float, typer.Option(min=0, max=1, help="Probability of a reconnect after each decision.")
    ] = 0.0,
    as_json: AsJson = False,
    allow_code: AllowCode = False,
) -> None:
    """Play simulated games against a running service.

    The games can duplicate, delay and lose messages, and reconnect. Tokens are read from FOLDER/tokens.json unless
    --token-file or TOWNLET_GAME_TOKEN is set.
    """
    import asyncio

    from townlet.decide.domains import DOMAINS
    from townlet.decide.simulate import NetworkFaults, client_tokens, fetch_outcomes
    from townlet.decide.simulate import simulate as play

    found = DOMAINS[domain]
    simulated_games = [found.make_game(seed + n, f"{found.name} {seed}.{n}", stage) for n in range(games)]
    # New names: the service remembers earlier territories, and their clocks cannot restart.
    name = name or f"game {secrets.token_hex(2)}"
    territories = [f"{name}.{n}" for n in range(games)]
    faults = NetworkFaults(duplicates, reordering, losses, reconnects)
    game_token, viewer_token = client_tokens(url, folder, token_file)
    before = fetch_outcomes(url, viewer_token)
    settings: dict[str, Any] = {"token": game_token, "faults": faults, "seed": seed, "pause": pause}
    result = asyncio.run(play(url, simulated_games, observations, territories=territories, **settings))
    after = fetch_outcomes(url, viewer_token)
    results: dict[str, Any] = {
        "observations": result.observations, "sent": result.sent, "waited": result.waited, "refused": result.refused,
        "reports": result.reports, "connections": result.connections, "seconds": result.seconds,
        "per_second": result.observations / result.seconds, "p50_ms": 1000 * result.percentile(0.5),
        "p99_ms": 1000 * result.percentile(0.99),
    }  # fmt: skip
    if before and after and after[0] > before[0]:
        results["mean_reward"] = (after[1] - before[1]) / (after[0] - before[0])
    if result.refusal:
        results["first_refusal"] = result.refusal
    if as_json:
        out().print_json(json.dumps(results))
    else:
        for key, value in results.items():
            if isinstance(value, int | float):
                value = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
            echo(f"{key.replace('_', ' '):>14}  {value}")
    if result.refused == result.observations:
        echo_err(f"The service refused every observation: {result.refusal}", style="red")
        raise typer.Exit(1)
