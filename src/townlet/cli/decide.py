"""`townlet decide`: serve decisions to a live game, play with the service, and look at what it did."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from townlet.cli.console import examples, out
from townlet.cli.options import AsJson
from townlet.cli.page import open_page
from townlet.cli.verbs import Verbs
from townlet.errors import TownletError, did_you_mean

if TYPE_CHECKING:
    from townlet.decide.settings import DecideSettings

PORT: Final = 8780
SWITCH: Final = 5e-4  # seconds after which a thread makes way for another: so answers do not wait for the trainer
FOLDER: Final = Path("decisions")

app = Verbs("Decide for a live game, and learn from what comes of it.")

What = Annotated[str, typer.Argument(metavar="DOMAIN|FILE", help="hive, bandit-ads, or a YAML file of settings.")]
Changes = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes of settings.")]
Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="Where its log and its versions lie.")]


def _settings(what: str, changes: list[str] | None) -> DecideSettings:
    from townlet.decide.domains import DOMAINS
    from townlet.decide.settings import load

    path = Path(what)
    return load(path if path.suffix in (".yaml", ".yml") else what, changes or (), DOMAINS)


@app.command(
    epilog=examples(
        "townlet decide serve hive",
        "townlet decide serve hive learning.every=.5 gate.threshold=.5 --folder night",
        "townlet decide serve my-game.yaml --origin https://play.example",
    )
)
def serve(
    what: What = "hive",
    changes: Changes = None,
    folder: Folder = FOLDER,
    host: Annotated[str, typer.Option(help="Where to listen; beyond this machine a token is asked for.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Which port, or one of the next that is free.")] = PORT,
    token: Annotated[str | None, typer.Option(help="The token to ask for; by default a new one.")] = None,
    origin: Annotated[
        list[str] | None, typer.Option(help="Where the page of a game comes from; may be repeated.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the dashboard in your browser.")] = False,
) -> None:
    """Answer a game's observations, and learn all the while.

    Ctrl-C ends it; everything that was acknowledged is on the disk, and the next start goes on from there.
    """
    from townlet.web.serve import Server

    settings = _settings(what, changes)
    server = Server(host, port, token, origins=origin or (), programs=True)
    import torch  # takes seconds, as the next one does

    from townlet.decide.app import open_app

    torch.set_num_threads(1)  # networks this small gain nothing by more, and games wait for the cores
    sys.setswitchinterval(SWITCH)
    application = open_app(folder, settings)
    page, _, secret = server.link.replace("http", "ws", 1).partition("?")
    address = f"{page}ws?{secret}" if secret else f"{page}ws"
    out().print(f"Games connect to {address}", soft_wrap=True)
    out().print(f"Dashboard: {server.link}  Ctrl-C ends it.", soft_wrap=True)
    out().file.flush()
    if show:
        open_page(server.link)
    server.run(application)


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
    token: Annotated[str | None, typer.Option(help="The token that the service asks for.")] = None,
    games: Annotated[int, typer.Option(min=1, max=5000, help="Territories, with a connection each.")] = 4,
    observations: Annotated[int, typer.Option(min=1, help="Of each game.")] = 200,
    stage: Annotated[int, typer.Option(min=0, help="How hard the game is, from 0 on.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of the games and of what goes wrong.")] = 0,
    pause: Annotated[float, typer.Option(min=0, help="Seconds between a decision and the next.")] = 0.0,
    duplicates: Annotated[float, typer.Option(min=0, max=1, help="Share of messages that are sent twice.")] = 0.0,
    reordering: Annotated[float, typer.Option(min=0, max=1, help="Share of reports that come late.")] = 0.0,
    losses: Annotated[float, typer.Option(min=0, max=1, help="Share of reports that are lost.")] = 0.0,
    reconnects: Annotated[float, typer.Option(min=0, max=1, help="Chance to reconnect after a decision.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Play simulated games with a running service.

    They can be rude: send things twice, late or never, and come and go.
    """
    import asyncio

    from townlet.decide.domains import DOMAINS
    from townlet.decide.simulate import Trouble
    from townlet.decide.simulate import simulate as play

    if domain not in DOMAINS:
        raise TownletError(f"no domain is called '{domain}'", did_you_mean(domain, sorted(DOMAINS)))
    played = [DOMAINS[domain].game(seed + place, f"{domain} {seed}.{place}", stage) for place in range(games)]
    trouble = Trouble(duplicates, reordering, losses, reconnects)
    score = asyncio.run(play(url, played, observations, token=token, trouble=trouble, seed=seed, pause=pause))
    told = {
        "observations": score.observations, "sent": score.sent, "waited": score.waited, "refused": score.refused,
        "reports": score.reports, "connections": score.connections, "seconds": score.seconds,
        "per_second": score.observations / score.seconds, "p50_ms": 1000 * score.percentile(0.5),
        "p99_ms": 1000 * score.percentile(0.99),
    }  # fmt: skip
    if as_json:
        out().print_json(json.dumps(told))
    else:
        for name, value in told.items():
            out().print(
                f"{name.replace('_', ' '):>14}  {value:,.2f}" if isinstance(value, float) else f"{name:>14}  {value:,}"
            )


@app.command(epilog=examples("townlet decide versions", "townlet decide versions --folder night --json"))
def versions(folder: Folder = FOLDER, as_json: AsJson = False) -> None:
    """List the versions that are kept, and why which served when."""
    from townlet.decide.recovery import VERSIONS
    from townlet.decide.versions import told_of

    found = told_of(folder / VERSIONS)
    if as_json:
        out().print_json(json.dumps(found))
        return
    for change in found["history"]:
        out().print(f"version {change['version']}: {change['kind']}, {change['reason']}", markup=False, soft_wrap=True)
    kept = ", ".join(str(one["version"]) for one in found["versions"])
    out().print(f"Kept: {kept}. Serving: {found['serving']}." + (" Pinned." if found["pinned"] else ""))


@app.command(epilog=examples("townlet decide replay", "townlet decide replay --folder night --json"))
def replay(folder: Folder = FOLDER, as_json: AsJson = False) -> None:
    """Learn it all again from the log, and compare every version.

    The same log gives the same weights, to the last bit; otherwise something is damaged or was changed.
    """
    from townlet.decide.recovery import replayed

    found: list[dict[str, Any]] = []
    for checked in replayed(folder):
        found.append(checked._asdict() | {"same": checked.same})
        if not as_json:
            mark = "the same" if checked.same else f"DIFFERENT: {checked.found[:12]} instead of {checked.digest[:12]}"
            out().print(f"version {checked.version}, step {checked.step}: {mark}")
    if as_json:
        out().print_json(json.dumps(found))
    else:
        same = sum(one["same"] for one in found)
        out().print(f"{same} of {len(found)} versions are the same.")
    if not all(one["same"] for one in found):
        raise typer.Exit(1)
