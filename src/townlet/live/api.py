"""HTTP API of the page: runs, worlds, training maps, recordings, saved worlds and episodes of Gymnasium runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi import Path as PathParam
from fastapi.responses import PlainTextResponse, Response
from pydantic import Field

from townlet.curriculum.spec import FixedSpec
from townlet.live import world_editing
from townlet.live.gym_episode import GymEpisode, csv_text
from townlet.live.hub import Hub
from townlet.live.lessons import lesson_title
from townlet.live.messages import Message
from townlet.live.rollout_worker import RolloutRequest
from townlet.live.watched_run import NotFound, WatchedRun, WatchedTownRun, find_run, open_watched_run
from townlet.live.world_view import world_json
from townlet.runs.folder import SHIPPED
from townlet.runs.metrics_reader import MetricsReader, counted_fraction
from townlet.runs.overview import with_shipped
from townlet.tasks.town import without_shaping
from townlet.town.episode_recorder import FRAME_FIELDS, Recording
from townlet.town.world.load import FOLDER, shipped
from townlet.town.world.tables import World
from townlet.town.world.text import short_text
from townlet.web.limits import SingleFlightCache

SPARKLINE_POINTS: Final = 60  # newest scores of a run in the list of runs
CACHE_SECONDS: Final = 2.0  # how long clients share a response whose content may change
IMMUTABLE: Final = {"Cache-Control": "private, max-age=3600, immutable"}  # an episode's key determines its content

EpisodeKey = Annotated[str, PathParam(pattern="^[0-9a-f]{16}$")]
Index = Annotated[int, PathParam(ge=0, le=10**6)]


class SaveWorld(Message):
    """Request to save a world."""

    name: str = Field(min_length=1, max_length=40)
    text: str = Field(min_length=1, max_length=120_000)


def api_router(hub: Hub, worlds: Path) -> APIRouter:
    """Routes about runs and worlds; new worlds are written to the folder `worlds`."""
    router = APIRouter(prefix="/api")
    run_lists: SingleFlightCache[list[dict[str, Any]]] = SingleFlightCache(CACHE_SECONDS)
    training_maps: SingleFlightCache[dict[str, Any]] = SingleFlightCache(CACHE_SECONDS)

    @router.get("/runs")
    def runs() -> list[dict[str, Any]]:
        """All runs, newest first, then the shipped agents."""

        def list_runs() -> list[dict[str, Any]]:
            runs = []
            for overview in with_shipped(hub.root):
                run = {
                    **overview.as_json(),
                    "kind": "gym" if overview.meta.get("gym") else "town",
                    "scores": overview.scores[-SPARKLINE_POINTS:],
                    "shipped": overview.run.path.parent == SHIPPED,
                    "lesson": lesson_title(overview.meta),
                    "random": overview.random_evaluation.get(overview.terms.curve_metric),
                }
                del run["path"]
                runs.append(run)
            return runs

        return run_lists.get("runs", list_runs)

    @router.get("/runs/{name}")
    def run(name: str) -> dict[str, Any]:
        """Static description of a run; for towns also its world, the world's text and the recordings."""
        watched = open_watched_run(find_run(hub.root, name))
        recipe, task = watched.loaded.recipe, watched.loaded.task
        if not isinstance(watched, WatchedTownRun):
            return {"kind": "gym", "env": recipe.env, **task.describe(), "recordings": []}
        # A recipe adds its own shaping to an edited world, with the discount factor of its agent.
        edited = without_shaping(watched.world) if recipe.potential else watched.world
        text, world = short_text(edited), world_json(watched.world)
        curriculum = None
        if recipe.curriculum:
            first_stage = recipe.curriculum.stage if isinstance(recipe.curriculum, FixedSpec) else 1
            curriculum = {"rows": recipe.row_count, "first_stage": first_stage}
        recordings = watched.recordings()
        return {"kind": "town", "world": world, "text": text, "recordings": recordings, "curriculum": curriculum}

    @router.get("/runs/{name}/maps")
    def maps(name: str) -> dict[str, Any]:
        """Cell visits, novelty, affordance transitions and causes of episode ends, over all of training."""
        return training_maps.get(name, lambda: _training_maps(open_watched_run(find_run(hub.root, name))))

    @router.get("/runs/{name}/recordings/{number}.csv")
    def recording(name: str, number: int) -> Response:
        """A recorded episode as CSV, one line per timestep."""
        town = open_watched_run(find_run(hub.root, name)).town()
        return _csv_download(recording_csv(town.world, town.recorded_episode(number).recording), f"{name}-{number}")

    @router.get("/worlds")
    def world_names() -> list[str]:
        """Names of the shipped worlds."""
        return list(shipped())

    @router.get("/palette")
    def standard_affordances() -> list[dict[str, Any]]:
        """Affordances that can be added to a world, with all their settings but the cell."""
        return world_editing.palette()

    @router.get("/worlds/{name}")
    def world_text(name: str) -> Response:
        """YAML text of a shipped world."""
        if name not in shipped():
            raise NotFound(f"there is no world '{name[:40]}'", "choose one from the list of worlds")
        return PlainTextResponse((FOLDER / f"{name}.yaml").read_text("utf-8"))

    @router.post("/worlds")
    def save_world(request: SaveWorld) -> dict[str, str]:
        """Save a world, under the next free name if another one has its name; files are never overwritten."""
        return {"file": str(world_editing.store_world(worlds, request.name, request.text))}

    return router


def episode_router(hub: Hub) -> APIRouter:
    """Routes about episodes of Gymnasium runs. Starting one is a POST, so that its Origin is checked."""
    router = APIRouter(prefix="/api/runs/{name}/episodes")

    def find(name: str, key: str) -> GymEpisode:
        return hub.rollouts.find(find_run(hub.root, name).name, key)

    @router.post("")
    def start(name: str, request: RolloutRequest) -> dict[str, str]:
        """Roll out an episode, unless the same one is cached."""
        return {"episode": hub.rollouts.start(find_run(hub.root, name), request).key}

    @router.get("/{key}")
    def read(name: str, key: EpisodeKey, since: Annotated[int, Query(ge=0, le=10**6)] = 0) -> dict[str, Any]:
        """Timesteps from `since` on; with since=0 also the static description."""
        episode = find(name, key)
        return {**episode.part(since), "about": episode.about() if since == 0 else None}

    @router.get("/{key}/frames/{timestep}.jpg")
    def frame(name: str, key: EpisodeKey, timestep: Index) -> Response:
        """The rendered environment at a timestep."""
        return _image(find(name, key).frames, timestep, "image/jpeg")

    @router.get("/{key}/observations/{block}/{timestep}.png")
    def observation(name: str, key: EpisodeKey, block: Index, timestep: Index) -> Response:
        """An image block of the observation, by its index among the image blocks."""
        blocks = list(find(name, key).observations.values())
        return _image(blocks[block] if block < len(blocks) else [], timestep, "image/png")

    @router.get("/{key}/steps.csv")
    def table(name: str, key: EpisodeKey) -> Response:
        """All steps so far as CSV."""
        episode = find(name, key)
        return _csv_download(episode.as_csv(), episode.title)

    return router


def _csv_download(text: str, title: str) -> Response:
    disposition = f'attachment; filename="{title}.csv"'
    return PlainTextResponse(text, media_type="text/csv", headers={"Content-Disposition": disposition})


def _image(images: list[bytes], timestep: int, media_type: str) -> Response:
    if timestep >= len(images):
        raise NotFound(f"there is no image of timestep {timestep}", "see `frames` of the episode for their number")
    return Response(images[timestep], media_type=media_type, headers=IMMUTABLE)


def _training_maps(watched: WatchedRun) -> dict[str, Any]:
    """Totals over all of training; Gymnasium runs have only `causes`, the number of episodes by how they ended.

    Visits and transitions are those of the fraction `counted` of the steps.
    """
    if not watched.run.metrics_file.exists():
        return {"visits": [], "novelty": None, "transitions": [], "counted": 1.0, "causes": {}}
    with MetricsReader(watched.run.metrics_file) as store:
        visits = store.totals("cell_visits", ("cell",))
        counted = counted_fraction(store)
        last = store.read("cell_visits", ("env_steps",), last=1)["env_steps"]
        newest = store.read("cell_visits", ("cell", "novelty"), since=last[0] - 1 if last else 0)
        transitions = store.totals("affordance_transitions", ("from", "to"))
        causes = store.read("episode_intervals", ("causes",))["causes"]
    cells = int(watched.world.tables.next_cell.shape[1]) if isinstance(watched, WatchedTownRun) else 0
    novelty = dict(zip(newest["cell"], newest["novelty"], strict=True))
    has_novelty = any(value is not None for value in novelty.values())
    return {
        "visits": [visits.get((cell,), 0) for cell in range(cells)],
        "novelty": [novelty.get(cell) for cell in range(cells)] if has_novelty else None,
        "transitions": [[*pair, count] for pair, count in transitions.items()],
        "counted": counted,
        "causes": sum((Counter(part) for part in causes if part), Counter()),
    }


def recording_csv(world: World, r: Recording) -> str:
    """A recorded episode as CSV: the state at each timestep, the transition that led to it, and all meters."""
    outputs, components = [f"output_{a}" for a in world.actions], [f"reward_{c}" for c in world.rewards]
    rows: list[list[Any]] = [[*FRAME_FIELDS, "action", "reward", *components, *outputs, *world.meters]]
    for at in range(len(r) + 1):
        transition: list[Any] = [""] * (2 + len(components) + len(outputs))
        if at:
            step = at - 1
            transition = [world.actions[int(r.actions[step])], float(r.reward[step])]
            transition += [*r.components[step].tolist(), *r.outputs[step].tolist()]
        rows.append([*(int(getattr(r, name)[at]) for name in FRAME_FIELDS), *transition, *r.meters[at].tolist()])
    return csv_text(rows)
