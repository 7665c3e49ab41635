"""What a page asks for once, over HTTP: runs, worlds, maps and kept lives; and the one thing it may write, a world."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi import Path as PathParam
from fastapi.responses import PlainTextResponse, Response
from pydantic import Field

from townlet.errors import TownletError
from townlet.live.gym_episode import GymEpisode
from townlet.live.hub import Hub
from townlet.live.protocol import Message
from townlet.live.rollout_worker import RolloutRequest
from townlet.live.watched_run import NotFound, WatchedRun, WatchedTownRun, find_run, open_watched_run
from townlet.live.world_view import parse_world, shipped_source, world_json
from townlet.runs import disk
from townlet.runs.metrics_reader import MetricsReader
from townlet.runs.overview import list_overviews
from townlet.town.episode_recorder import FRAME_FIELDS, Recording
from townlet.town.world.load import shipped
from townlet.town.world.tables import World
from townlet.web.limits import SingleFlightCache

WORLD_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")
SPARKLINE_POINTS: Final = 60  # points of a sparkline
CACHE_SECONDS: Final = 2.0  # seconds that an answer about what changes is good for everybody


class SaveWorld(Message):
    """A world to be saved."""

    name: str = Field(min_length=1, max_length=40)
    text: str = Field(min_length=1, max_length=120_000)


def api_router(house: Hub, worlds: Path) -> APIRouter:
    """The routes; new worlds are written into the folder `worlds`."""
    ask = APIRouter(prefix="/api")
    listed: SingleFlightCache[list[dict[str, Any]]] = SingleFlightCache(CACHE_SECONDS)
    mapped: SingleFlightCache[dict[str, Any]] = SingleFlightCache(CACHE_SECONDS)

    @ask.get("/runs")
    def runs() -> list[dict[str, Any]]:
        """All runs, newest first."""
        return listed.get("runs", lambda: _list_runs(house.root))

    @ask.get("/runs/{name}")
    def about(name: str) -> dict[str, Any]:
        """One run: of a town its world as it is drawn and as it is written, and the lives it kept."""
        return _describe_run(open_watched_run(find_run(house.root, name)))

    @ask.get("/runs/{name}/maps")
    def maps(name: str) -> dict[str, Any]:
        """Where agents were, what was new to them, which place followed which, and what they died of."""
        return mapped.get(name, lambda: _training_maps(open_watched_run(find_run(house.root, name))))

    @ask.get("/runs/{name}/recordings/{number}.csv")
    def recording(name: str, number: int) -> Response:
        """A life that was kept, one line for each step."""
        stand = open_watched_run(find_run(house.root, name)).town()
        life = stand.recorded(number)
        told = f'attachment; filename="{name}-{number}.csv"'
        return PlainTextResponse(
            recording_csv(stand.world, life.recording), media_type="text/csv", headers={"Content-Disposition": told}
        )

    @ask.get("/worlds")
    def known() -> list[str]:
        """The shipped worlds."""
        return list(shipped())

    @ask.get("/worlds/{name}")
    def text_of(name: str) -> Response:
        """The text of a shipped world."""
        if name not in shipped():
            raise NotFound(f"there is no world '{name[:40]}'", "the list of worlds names all of them")
        return PlainTextResponse(shipped_source(name))

    @ask.post("/worlds")
    def save(asked: SaveWorld) -> dict[str, str]:
        """Write a new world; one that is there, shipped or not, stays as it is."""
        return {"file": _save_world(worlds, asked)}

    return ask


def _list_runs(root: Path) -> list[dict[str, Any]]:
    hidden = ("path",)  # a page need not know where on the disk they lie
    told = [{**o.as_json(), "scores": o.scores[-SPARKLINE_POINTS:], "random": o.random} for o in list_overviews(root)]
    return [{key: value for key, value in one.items() if key not in hidden} for one in told]


def _describe_run(stand: WatchedRun) -> dict[str, Any]:
    """What does not change while one looks."""
    recipe, task = stand.loaded.recipe, stand.loaded.task
    if not isinstance(stand, WatchedTownRun):
        threshold = recipe.reward_threshold or task.threshold
        return {"kind": "gym", "env": recipe.env, "threshold": threshold, "limit": task.limit, "recordings": []}
    file = stand.run.worlds / "training.yaml"
    text = file.read_text("utf-8") if file.is_file() else ""
    return {"kind": "town", "world": world_json(stand.world), "text": text, "recordings": stand.recordings()}


def _training_maps(stand: WatchedRun) -> dict[str, Any]:
    """Of all of training; where there is no town, only how episodes ended."""
    if not stand.run.metrics_file.exists():
        return {"visits": [], "novelty": None, "transitions": [], "causes": {}}
    with MetricsReader(stand.run.metrics_file) as store:
        visits = store.totals("cell_visits", ("cell",))
        last = store.read("cell_visits", ("env_steps",), last=1)["env_steps"]
        newest = (
            store.read("cell_visits", ("cell", "novelty"), since=last[0] - 1) if last else {"cell": [], "novelty": []}
        )
        ways = store.totals("affordance_transitions", ("from", "to"))
        deaths = store.read("episode_intervals", ("causes",))["causes"]
    cells = int(stand.world.tables.next_cell.shape[1]) if isinstance(stand, WatchedTownRun) else 0
    novelty = dict(zip(newest["cell"], newest["novelty"], strict=True))
    known = [value for value in novelty.values() if value is not None]
    return {
        "visits": [visits.get((cell,), 0) for cell in range(cells)],
        "novelty": [novelty.get(cell) for cell in range(cells)] if known else None,
        "transitions": [[*way, count] for way, count in ways.items()],
        "causes": sum((Counter(part) for part in deaths if part), Counter()),
    }


def recording_csv(world: World, r: Recording) -> str:
    """A life as a table: the moment, the step that led to it, and every meter."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    outputs, parts = [f"output_{a}" for a in world.actions], [f"reward_{c}" for c in world.rewards]
    table.writerow([*FRAME_FIELDS, "action", "reward", *parts, *outputs, *world.meters])
    for at in range(len(r) + 1):
        led: list[Any] = [""] * (2 + len(parts) + len(outputs))
        if at:
            step = at - 1
            led = [world.actions[int(r.actions[step])], float(r.reward[step])]
            led += [*r.components[step].tolist(), *r.outputs[step].tolist()]
        table.writerow([*(int(getattr(r, name)[at]) for name in FRAME_FIELDS), *led, *r.meters[at].tolist()])
    return out.getvalue()


def _save_world(folder: Path, asked: SaveWorld) -> str:
    if not WORLD_NAME.fullmatch(asked.name):
        raise TownletError(f"'{asked.name[:40]}' is no name for a world", "use small letters, digits and dashes")
    if asked.name in shipped():
        raise TownletError(f"'{asked.name}' is a shipped world and stays as it is", "choose another name")
    parse_world(asked.text)  # a world with mistakes is not worth a file
    path = folder / f"{asked.name}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        disk.write_new(path, asked.text.encode())
    except FileExistsError:
        raise TownletError(f"{path.name} is there already", "choose another name") from None
    return str(path)


EpisodeKey = Annotated[str, PathParam(pattern="^[0-9a-f]{16}$")]
Index = Annotated[int, PathParam(ge=0, le=10**6)]
IMMUTABLE: Final = {"Cache-Control": "private, max-age=3600, immutable"}  # the same key is the same episode


def episode_router(house: Hub) -> APIRouter:
    """The routes."""
    ask = APIRouter(prefix="/api/runs/{name}/episodes")

    def episode(name: str, key: str) -> GymEpisode:
        return house.studio.find(find_run(house.root, name).name, key)

    @ask.post("")
    def begin(name: str, wish: RolloutRequest) -> dict[str, str]:
        """Roll out an episode, or find one that was wished for before."""
        return {"episode": house.studio.begin(find_run(house.root, name), wish).key}

    @ask.get("/{key}")
    def part(name: str, key: EpisodeKey, since: Annotated[int, Query(ge=0, le=10**6)] = 0) -> dict[str, Any]:
        """What is known of it by now, from one moment on; with the first also what never changes."""
        found = episode(name, key)
        return {**found.part(since), "about": found.about() if since == 0 else None}

    @ask.get("/{key}/frames/{moment}.jpg")
    def frame(name: str, key: EpisodeKey, moment: Index) -> Response:
        """A moment as the environment draws it."""
        return _image(episode(name, key).frames, moment, "image/jpeg")

    @ask.get("/{key}/seen/{block}/{moment}.png")
    def seen(name: str, key: EpisodeKey, block: Index, moment: Index) -> Response:
        """A block of an observation that is a picture, by its place among those."""
        found = list(episode(name, key).seen.values())
        return _image(found[block] if block < len(found) else [], moment, "image/png")

    @ask.get("/{key}/steps.csv")
    def table(name: str, key: EpisodeKey) -> Response:
        """All that is known by now as a table, one line for each step."""
        found = episode(name, key)
        told = f'attachment; filename="{found.title}.csv"'
        return PlainTextResponse(found.as_csv(), media_type="text/csv", headers={"Content-Disposition": told})

    return ask


def _image(among: list[bytes], moment: int, kind: str) -> Response:
    if moment >= len(among):
        raise NotFound(f"there is no picture of moment {moment}", "the episode says how many there are")
    return Response(among[moment], media_type=kind, headers=IMMUTABLE)
