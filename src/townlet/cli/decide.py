"""`townlet decide`: serve decisions to a live game, play with the service, and look at what it did."""

from __future__ import annotations

import gc
import json
import secrets
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from townlet.cli.console import err, examples, out, print_integrity
from townlet.cli.help import CommandGroup
from townlet.cli.live import open_browser
from townlet.cli.options import NO_TOKEN, AsJson, NoToken, TokenFile
from townlet.decide import MAX_GAMES
from townlet.errors import TownletError, did_you_mean

if TYPE_CHECKING:
    from fastapi import FastAPI

    from townlet.decide.app import ServiceTokens
    from townlet.decide.service import Service
    from townlet.decide.settings import DecideSettings
    from townlet.web.server import Server

PORT: Final = 8780
SWITCH: Final = 5e-4  # seconds after which a thread makes way for another: so answers do not wait for the trainer
FOLDER: Final = Path("decisions")
OPTIONS: Final = ("port", "host", "origin", "folder", "open")  # options of `serve`, not settings
WORDS: Final = {
    "promote": "promoted", "roll_back": "rolled back", "pin": "pinned", "unpin": "unpinned", "hold": "held",
    "refuse": "refused", "noted": "noted only", "gate_only": "gate only", "gate_and_network": "network again",
}  # fmt: skip

app = CommandGroup("Decide for a live game, and learn from what comes of it.")

What = Annotated[str, typer.Argument(metavar="DOMAIN|FILE", help="hive, bandit-ads, or a YAML file of settings.")]
Changes = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes of settings.")]
Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="Where its log and its versions lie.")]


def _settings(what: str, changes: list[str] | None) -> DecideSettings:
    from townlet.decide.domains import DOMAINS
    from townlet.decide.settings import load_settings

    path = Path(what)
    return load_settings(path if path.suffix in (".yaml", ".yml") else what, changes or (), DOMAINS)


def _refuse_options(changes: Sequence[str]) -> None:
    """Whoever writes port=8790 means --port 8790."""
    for change in changes:
        key, equals, value = change.partition("=")
        if equals and key.strip() in OPTIONS:
            fix = "write --open" if key.strip() == "open" else f"write --{key.strip()} {value}"
            raise TownletError(f"'{key.strip()}' is no setting but an option", fix)


@app.command(
    epilog=examples(
        "townlet decide serve hive",
        "townlet decide serve hive learning.interval=.5 gate.threshold=.5 --folder night",
        "townlet decide serve my-game.yaml --origin https://play.example",
        "townlet decide serve hive --host 0.0.0.0 --token-file tokens.yaml",
    )
)
def serve(
    what: What = "hive",
    changes: Changes = None,
    folder: Folder = FOLDER,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Which port, or one of the next that is free.")] = PORT,
    token_file: TokenFile = None,
    no_token: NoToken = False,
    origin: Annotated[
        list[str] | None, typer.Option(help="Where the page of a game comes from; may be repeated.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the dashboard in your browser.")] = False,
    accept_data_loss: Annotated[
        bool, typer.Option("--accept-data-loss", help="Start even if log records are missing or damaged.")
    ] = False,
) -> None:
    """Answer a game's observations, and learn all the while.

    Ctrl-C ends it; everything that was acknowledged is on the disk, and the next start goes on from there.

    Games, operators and viewers have a token each. The first start generates them in FOLDER/tokens.json; to choose
    them, use --token-file or TOWNLET_GAME_TOKEN, TOWNLET_OPERATOR_TOKEN and TOWNLET_VIEWER_TOKEN.
    """
    _refuse_options(changes or ())
    err().print(f"Opening {folder} …", markup=False, soft_wrap=True)  # what follows takes seconds
    from townlet.decide.app import access, load_service_tokens
    from townlet.web.server import Server

    settings = _settings(what, changes)
    found = None if no_token else load_service_tokens(folder, token_file)
    server = Server(
        host, port, found.tokens if found else None, origins=origin or (), allow_no_origin=True, access=access
    )
    if port not in (0, server.port):
        err().print(f"Port {port} is taken; listening at {server.port}.")
    from townlet.decide.app import open_app

    sys.setswitchinterval(SWITCH)
    application = open_app(folder, settings, accept_data_loss, server.descriptors)
    gc.collect()
    gc.freeze()  # else a full collection looks at all that the start has made, and pauses every game for 140 ms
    _announce(server, found)
    if show:
        open_browser(server.one_time_link())
    server.run(application)
    _take_leave(application, folder)


def _announce(server: Server, found: ServiceTokens | None) -> None:
    """Print addresses and tokens. Output that is not a terminal shows tokens only at the start that generates them."""
    out().print(f"Games connect to ws://{server.address}/ws", soft_wrap=True)
    if found is None:
        err().print(NO_TOKEN, style="yellow", soft_wrap=True)
    elif found.new:
        out().print(f"New tokens, stored in {found.source}:", markup=False, soft_wrap=True)
        for role, token in found.tokens.as_json().items():
            out().print(f"  {role:<8}  {token}", markup=False, soft_wrap=True)
    if found is None or found.new or (found.stored and out().is_terminal):
        out().print(f"Dashboard: {server.link()}  Ctrl-C ends it.", soft_wrap=True)
    else:
        where = f"?token=… (the operator's token, from {found.source})"
        out().print(f"Dashboard: http://{server.address}/{where}  Ctrl-C ends it.", markup=False, soft_wrap=True)
    out().file.flush()


def _take_leave(application: FastAPI, folder: Path) -> None:
    """What is kept, once all is closed."""
    service: Service = application.state.batcher.service
    serving, problem = service.versions.serving, service.log.problem
    saved = f"Saved, but for the last moments: {problem}." if problem else "Saved."
    served = f"Version {serving.version} served" if serving else "No version served"
    told = f"{saved} {served}, {service.state.decisions:,} decisions are kept in {folder}."
    err().print(told, markup=False, soft_wrap=True)
    if problem:
        raise typer.Exit(1)


@app.command(
    epilog=examples(
        "townlet decide simulate hive",
        "townlet decide simulate hive --games 20 --observations 500 --stage 2",
        "townlet decide simulate hive --duplicates .1 --losses .05 --reconnects .01",
    )
)
def simulate(
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="What is played: hive or bandit-ads.")] = "hive",
    url: Annotated[str, typer.Option(help="Where the service listens.")] = f"ws://127.0.0.1:{PORT}/ws",
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of a local service, for its tokens.")] = FOLDER,
    token_file: TokenFile = None,
    games: Annotated[int, typer.Option(min=1, max=MAX_GAMES, help="Territories, with a connection each.")] = 4,
    observations: Annotated[int, typer.Option(min=1, help="Of each game.")] = 200,
    stage: Annotated[int, typer.Option(min=0, help="How hard the game is, from 0 on.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of the games and of what goes wrong.")] = 0,
    name: Annotated[
        str | None, typer.Option(help="Of the territories, before their numbers; by default a new one each time.")
    ] = None,
    pause: Annotated[float, typer.Option(min=0, help="Seconds between a decision and the next.")] = 0.0,
    duplicates: Annotated[float, typer.Option(min=0, max=1, help="Share of messages that are sent twice.")] = 0.0,
    reordering: Annotated[float, typer.Option(min=0, max=1, help="Share of reports that come late.")] = 0.0,
    losses: Annotated[float, typer.Option(min=0, max=1, help="Share of reports that are lost.")] = 0.0,
    reconnects: Annotated[float, typer.Option(min=0, max=1, help="Chance to reconnect after a decision.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Play simulated games with a running service.

    They can misbehave: send messages twice, late or never, and disconnect. Tokens are read from FOLDER/tokens.json
    unless --token-file or TOWNLET_GAME_TOKEN is set.
    """
    import asyncio

    from townlet.decide.domains import DOMAINS
    from townlet.decide.simulate import NetworkFaults, client_tokens, fetch_outcomes
    from townlet.decide.simulate import simulate as play

    if domain not in DOMAINS:
        raise TownletError(f"no domain is called '{domain}'", did_you_mean(domain, sorted(DOMAINS)))
    played = [DOMAINS[domain].make_game(seed + place, f"{domain} {seed}.{place}", stage) for place in range(games)]
    # The service knows the games of an earlier call, and their time does not begin anew.
    name = name or f"game {secrets.token_hex(2)}"
    called = [f"{name}.{place}" for place in range(games)]
    trouble = NetworkFaults(duplicates, reordering, losses, reconnects)
    token, reader = client_tokens(url, folder, token_file)
    before = fetch_outcomes(url, reader)
    score = asyncio.run(
        play(url, played, observations, token=token, faults=trouble, seed=seed, pause=pause, territories=called)
    )
    after = fetch_outcomes(url, reader)
    told: dict[str, Any] = {
        "observations": score.observations, "sent": score.sent, "waited": score.waited, "refused": score.refused,
        "reports": score.reports, "connections": score.connections, "seconds": score.seconds,
        "per_second": score.observations / score.seconds, "p50_ms": 1000 * score.percentile(0.5),
        "p99_ms": 1000 * score.percentile(0.99),
    }  # fmt: skip
    if before and after and after.number > before.number:
        told["mean_reward"] = (after.total - before.total) / (after.number - before.number)
    if score.refusal:
        told["first_refusal"] = score.refusal
    if as_json:
        out().print_json(json.dumps(told))
    else:
        for key, value in told.items():
            shown = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
            out().print(f"{key.replace('_', ' '):>14}  {shown}", markup=False, soft_wrap=True)
    if score.refused == score.observations:
        err().print(f"Everything was refused: {score.refusal}", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(1)


@app.command(epilog=examples("townlet decide versions", "townlet decide versions --folder night --json"))
def versions(folder: Folder = FOLDER, as_json: AsJson = False) -> None:
    """List the versions that are kept, and why which served when.

    Many alike in a row are one line; --json has each.
    """
    from townlet.decide.stats import summarize_history
    from townlet.decide.storage import VERSIONS
    from townlet.decide.storage.serving_log import SERVING_LOG, read_serving_log, read_versions

    found = read_versions(folder / VERSIONS)
    if as_json:
        out().print_json(json.dumps(found))
        return
    for chapter in summarize_history(read_serving_log(folder / VERSIONS / SERVING_LOG).changes):
        out().print(_line(chapter), markup=False, soft_wrap=True)
    kept = [one["version"] for one in found["versions"]]
    first = f"{len(kept)} versions, {kept[0]} to {kept[-1]}" if len(kept) > 1 else ", ".join(map(str, kept)) or "none"
    state = [" Pinned."] * (found["pinned"] is not None) + [" The gate decides alone."] * found["gate_only"]
    out().print(f"Kept: {first}. Serving: {found['serving'] or 'none'}.{''.join(state)}")
    if found["fault"]:
        what = f"The serving record cannot be trusted: {found['fault']}. After a start the gate decides alone."
        err().print(what, markup=False, soft_wrap=True)


def _line(chapter: dict[str, Any]) -> str:
    """When, which versions, what was decided about them, and why."""
    at = datetime.fromtimestamp(chapter["at"]).strftime("%Y-%m-%d %H:%M:%S")
    first, last, times = chapter["first"], chapter["last"], chapter["times"]
    which = f"version {last}" if first == last else f"versions {first} to {last}"
    often = f", {times:,} times" if times > 1 else ""
    return f"{at}  {which}: {WORDS.get(chapter['verdict'], chapter['verdict'])}{often}: {chapter['reason']}"


@app.command(epilog=examples("townlet decide replay", "townlet decide replay --folder night --json"))
def replay(folder: Folder = FOLDER, as_json: AsJson = False) -> None:
    """Learn it all again from the log, and compare every version.

    The same log gives the same weights, to the last bit; otherwise something is damaged or was changed.
    """
    from townlet.decide.recovery import replay_folder

    found: list[dict[str, Any]] = []
    with err().status("reading the log") as status:
        for checked in replay_folder(folder):
            found.append(checked._asdict() | {"same": checked.same})
            status.update(f"{len(found):,} versions, now at step {checked.step:,}")
            if not (as_json or checked.same):
                what = f"{checked.replayed[:12]} instead of {checked.digest[:12]}"
                out().print(f"version {checked.version}, step {checked.step}: DIFFERENT, {what}")
    if as_json:
        out().print_json(json.dumps(found))
    else:
        same = sum(one["same"] for one in found)
        out().print(f"{same} of {len(found)} versions are the same.")
    if not all(one["same"] for one in found):
        raise typer.Exit(1)


ServiceFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a service, stopped or running.")]


@app.command(epilog=examples("townlet decide verify decisions", "townlet decide verify night --json"))
def verify(folder: ServiceFolder, as_json: AsJson = False) -> None:
    """Check every checksum and reference in the files of a service.

    Exit code 0 means that everything is whole, 1 that something is damaged.
    """
    from townlet.decide.storage.verify import verify as verify_folder

    with err().status("checking"):
        found = verify_folder(folder)
    print_integrity(found, as_json)


@app.command(epilog=examples("townlet decide backup decisions decisions-monday"))
def backup(
    folder: ServiceFolder,
    to: Annotated[Path, typer.Argument(metavar="TO", help="A new folder for the copy.")],
) -> None:
    """Make a consistent copy of a service, running or stopped.

    A service started from the copy has the state of the original at the last copied record.
    """
    from townlet.decide.storage.backup import backup as copy_folder

    with err().status("copying"):
        copied = copy_folder(folder, to)
    told = f"Copied to {to}: {copied.records:,} records, {copied.versions} versions, {copied.snapshots} snapshots."
    out().print(told, markup=False, soft_wrap=True)
