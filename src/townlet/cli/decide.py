"""`townlet decide`: serve decisions to live games, simulate games, and inspect or check a service."""

from __future__ import annotations

import gc
import json
import secrets
import shlex
import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from townlet.cli.console import echo, echo_err, err, out, print_integrity
from townlet.cli.help import CommandGroup, FormattedCommand
from townlet.cli.live import open_browser
from townlet.cli.options import NO_TOKEN, AsJson, Host, NoToken, Port, permit_code
from townlet.decide import MAX_GAMES
from townlet.errors import TownletError, did_you_mean

if TYPE_CHECKING:
    from townlet.decide.app import ServiceTokens
    from townlet.decide.domain import Domain
    from townlet.decide.service import Service
    from townlet.web.server import Server

PORT: Final = 8780
SWITCH_INTERVAL: Final = 5e-4  # seconds between thread switches: answers must not wait for the trainer
FOLDER: Final = Path("decisions")
SERVE_OPTIONS: Final = ("port", "host", "origin", "folder", "open", "storage", "role")
ROLES: Final = ("all", "decide", "learn")
VERDICTS: Final = {
    "promote": "promoted", "roll_back": "restored by a rollback", "pin": "pinned", "unpin": "unpinned", "hold": "held",
    "refuse": "refused", "noted": "not applied", "gate_only": "gate only", "gate_and_network": "network again",
}  # fmt: skip


class DomainCommand(FormattedCommand):
    """A command whose help page lists the domains."""

    def note(self) -> str:
        from townlet.decide.installed import installed_domains

        packages = ", ".join(sorted(installed_domains()))
        return "Domains: bandit-ads, hive, rank" + (f"; from installed packages: {packages}." if packages else ".")


app = CommandGroup("Serve decisions to live games and learn from their outcomes.")

Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the service: its log and policy versions.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Read tokens from a YAML or JSON file with the keys game, operator and viewer.",
    ),
]
ServiceFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a running or stopped service.")]
LogDomain = Annotated[
    str | None, typer.Argument(metavar="DOMAIN", help="The file of your own domain, if it made the decisions.")
]
AllowCode = Annotated[
    bool,
    typer.Option(
        "--allow-code", callback=permit_code, help="Allow the Python file of your own domain to run. Review it first."
    ),
]


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


StorageUrl = Annotated[
    str | None, typer.Option("--storage", metavar="URL", help="Database of the service, instead of a folder.")
]


@app.with_examples(
    "townlet decide serve hive",
    "townlet decide serve hive learning.interval=.5 --folder night",
    "townlet decide serve my-game.py --allow-code",
    "townlet decide serve my-game.yaml --origin https://play.example",
    "townlet decide serve hive --host 0.0.0.0 --token-file tokens.yaml",
    cls=DomainCommand,
)
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
    port: Port = PORT,
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
    for override in overrides or ():  # suggest --port 8790 for port=8790
        key, equals, value = override.partition("=")
        if equals and key.strip() in SERVE_OPTIONS:
            fix = "write --open" if key.strip() == "open" else f"write --{key.strip()} {value}"
            raise TownletError(f"'{key.strip()}' is an option, not a setting", fix)
    _check_storage(storage, role, accept_data_loss)
    from townlet.decide.app import load_service_tokens, open_app, open_shared_app, service_access
    from townlet.decide.domains import DOMAINS
    from townlet.decide.settings import load_settings
    from townlet.web.server import Server

    source = Path(what) if what.endswith((".yaml", ".yml")) else what
    settings = load_settings(source, overrides or (), DOMAINS)
    service_tokens = None if no_token else load_service_tokens(folder, token_file)
    tokens = service_tokens.tokens if service_tokens else None
    access = service_access(DOMAINS[settings.domain])
    server = Server(host, port, tokens, origins=origin or (), allow_no_origin=True, **access)
    if port not in (0, server.port):
        echo_err(f"Port {port} is taken; listening on port {server.port}.")
    sys.setswitchinterval(SWITCH_INTERVAL)
    if storage is None:
        echo_err(f"Opening {folder} …")  # replaying a long log takes seconds
        application = open_app(folder, settings, accept_data_loss, server.descriptors)
    else:
        application = open_shared_app(storage, settings, role, server.descriptors)
    gc.collect()
    gc.freeze()  # a full collection of the objects made so far would pause every game for 140 ms
    _print_addresses(server, service_tokens, DOMAINS[settings.domain])
    if show:
        open_browser(server.one_time_link())
    server.run(application)
    if storage is not None:
        return
    service: Service = application.state.batcher.service
    serving, problem = service.versions.serving, service.storage.problem
    saved = f"Saved, except for the last records: {problem}." if problem else "Saved."
    served = f"Version {serving.version} served" if serving else "No version served"
    echo_err(f"{saved} {served}; {folder} holds {service.storage.counts().decisions:,} decisions.")
    if problem:  # the log could not be written to the end
        raise typer.Exit(1)


def _check_storage(storage: str | None, role: str, accept_data_loss: bool) -> None:
    if role not in ROLES:
        raise TownletError(f"--role {role} does not exist", did_you_mean(role, ROLES))
    if storage is None:
        if role != "all":
            raise TownletError(f"--role {role} needs --storage", "one process can serve a folder; it does everything")
        return
    if not storage.startswith(("postgresql://", "postgres://")):
        raise TownletError(f"--storage {storage} is not a URL of PostgreSQL", "write postgresql://user@host/database")
    if accept_data_loss:
        raise TownletError("--accept-data-loss is for a folder", "restore a backup of the database instead")


def _print_addresses(server: Server, service_tokens: ServiceTokens | None, domain: Domain) -> None:
    """Print addresses and tokens; without a terminal, tokens are printed only when they are generated."""
    from townlet.decide.public_files import EXAMPLE_DOMAIN, EXAMPLES
    from townlet.web.tokens import GAME, ROLES

    echo(f"Games connect to ws://{server.address}/ws")
    if domain.http:
        echo(f"or send HTTP requests to http://{server.address}{domain.http.prefix}")
    link, game_token = server.link(), service_tokens.tokens.first(GAME) if service_tokens else None
    if service_tokens is None:
        echo_err(NO_TOKEN, style="yellow")
    elif service_tokens.new:
        echo(f"New tokens, stored in {service_tokens.source}:")
        echo(*(f"  {role:<8}  {service_tokens.tokens.first(role)}" for role in ROLES))
    elif not (service_tokens.stored and out().is_terminal):
        link = f"http://{server.address}/?token=… (the operator's token, from {service_tokens.source})"
        game_token = "…"
    if domain.name == EXAMPLE_DOMAIN:  # the fragment of a link is not sent to the server
        echo(f"Example game: http://{server.address}{EXAMPLES}/" + (f"#token={game_token}" if game_token else ""))
    echo(f"Dashboard: {link}  Press Ctrl-C to stop.")
    out().file.flush()


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


@app.with_examples(
    "townlet decide versions",
    "townlet decide versions --folder night --json",
    "townlet decide versions --storage postgresql://townlet@db/townlet",
)
def versions(folder: Folder = FOLDER, storage: StorageUrl = None, as_json: AsJson = False) -> None:
    """List the policy versions: which ones served when, and why.

    Consecutive changes of one kind share a line; --json prints the newest changes one by one.
    """
    from townlet.decide.stats import summarize_history
    from townlet.decide.storage.stored_service import open_stored

    with closing(open_stored(storage or folder)) as stored:
        summary, changes = stored.overview(), stored.changes()
    if as_json:
        out().print_json(json.dumps(summary))
        return
    for group in summarize_history(changes):
        at = datetime.fromtimestamp(group["at"]).strftime("%Y-%m-%d %H:%M:%S")
        first, last, times = group["first"], group["last"], group["times"]
        which = f"version {last}" if first == last else f"versions {first} to {last}"
        repeated = f", {times:,} times" if times > 1 else ""
        echo(f"{at}  {which}: {VERDICTS.get(group['verdict'], group['verdict'])}{repeated}: {group['reason']}")
    numbers = [version["version"] for version in summary["versions"]]
    kept = f"version {numbers[0]}" if numbers else "none"
    if len(numbers) > 1:
        kept = f"{len(numbers)} versions, {numbers[0]} to {numbers[-1]}"
    pinned = " Pinned." if summary["pinned"] is not None else ""
    gate_only = " The gate decides alone." if summary["gate_only"] else ""
    echo(f"Stored: {kept}. Serving: {summary['serving'] or 'none'}.{pinned}{gate_only}")
    if summary["fault"]:
        echo_err(f"The serving log cannot be trusted: {summary['fault']}. After a restart the gate decides alone.")


@app.with_examples(
    "townlet decide replay",
    "townlet decide replay --folder night --json",
    "townlet decide replay my-game.py --allow-code",
    "townlet decide replay --storage postgresql://townlet@db/townlet",
)
def replay(
    domain: LogDomain = None, folder: Folder = FOLDER, storage: StorageUrl = None, as_json: AsJson = False,
    allow_code: AllowCode = False,
) -> None:  # fmt: skip
    """Retrain from the log and compare every version with the stored one.

    The same log gives bit-identical weights; a difference means that something stored is damaged or was changed.
    """
    from townlet.decide.storage.stored_service import open_stored, replay_stored

    _load_domain(domain)
    results: list[dict[str, Any]] = []
    with closing(open_stored(storage or folder)) as stored, err().status("reading the log") as status:
        for checked in replay_stored(stored):
            results.append(checked._asdict() | {"same": checked.same})
            status.update(f"{len(results):,} versions, now at step {checked.step:,}")
            if not (as_json or checked.same):
                digests = f"replayed {checked.replayed[:12]}, stored {checked.digest[:12]}"
                echo(f"version {checked.version}, step {checked.step}: DIFFERENT, {digests}")
    same = sum(result["same"] for result in results)
    if as_json:
        out().print_json(json.dumps(results))
    else:
        echo(f"{same} of {len(results)} versions are identical.")
    if same < len(results):
        raise typer.Exit(1)


@app.with_examples(
    "townlet decide verify decisions",
    "townlet decide verify night --json",
    "townlet decide verify decisions my-game.py --allow-code",
    "townlet decide verify --storage postgresql://townlet@db/townlet",
)
def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a running or stopped service.")] = FOLDER,
    domain: LogDomain = None,
    storage: StorageUrl = None,
    as_json: AsJson = False,
    allow_code: AllowCode = False,
) -> None:
    """Check every checksum and reference in what a service has stored.

    Exits with code 0 if everything is intact, 1 if something is damaged, 2 if there is nothing to check.
    """
    from townlet.decide.storage.stored_service import open_stored

    _load_domain(domain)
    with closing(open_stored(storage or folder)) as stored, err().status("checking"):
        report = stored.verify()
    print_integrity(report, as_json)


def _load_domain(name: str | None) -> None:
    """Load the domain that a command names, so that it is found by the name in a log."""
    from townlet.decide.domains import DOMAINS

    if name is not None:
        DOMAINS[name]


@app.with_examples("townlet decide backup decisions decisions-monday")
def backup(
    folder: ServiceFolder, to: Annotated[Path, typer.Argument(metavar="TO", help="New folder for the copy.")]
) -> None:
    """Make a consistent copy of a running or stopped service.

    A service started from the copy has the state that the original had at the last copied record.
    """
    from townlet.decide.storage.backup import backup as copy_folder

    with err().status("copying"):
        copied = copy_folder(folder, to)
    echo(f"Copied to {to}: {copied.records:,} records, {copied.versions} versions, {copied.snapshots} snapshots.")


@app.with_examples(
    "townlet decide copy decisions postgresql://townlet@db/townlet",
    "townlet decide copy postgresql://townlet@db/townlet decisions",
)
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Folder or database of a service that is stopped.")],
    to: Annotated[str, typer.Argument(metavar="TO", help="New or empty folder, or empty database: postgresql://…")],
) -> None:
    """Copy a service to another storage, where it continues.

    The copy appears complete or not at all. FROM stays as it is; serve only one of the two from now on.
    """
    from townlet.decide.storage.copy import copy_service

    with err().status("copying"):
        copied = copy_service(source, to)
    echo(f"Copied: {copied.records:,} records, {copied.versions} versions, {copied.snapshots} snapshots.")
