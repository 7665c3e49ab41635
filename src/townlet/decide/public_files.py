"""Files that need no token: the clients for games, and the example, which has a token only if its link has one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

FOLDER: Final = Path(__file__).parent / "static"
CLIENTS: Final = {  # path to file and media type
    "/client.js": ("client.js", "text/javascript"),
    "/client.d.ts": ("client.d.ts", "text/plain"),
    "/client.cs": ("TownletClient.cs", "text/plain"),
}
EXAMPLES: Final = "/examples"
EXAMPLE_DOMAIN: Final = "rank"  # the one that the example plays with


def is_public_file(path: str) -> bool:
    """Whether a path is one of these files."""
    return path in CLIENTS or path == EXAMPLES or path.startswith(f"{EXAMPLES}/")


def add_public_files(app: FastAPI) -> None:
    """Serve them."""
    for path, (name, media_type) in CLIENTS.items():
        _add_file(app, path, FOLDER / name, media_type)
    app.mount(EXAMPLES, StaticFiles(directory=FOLDER / "examples", html=True), name="examples")


def _add_file(app: FastAPI, path: str, file: Path, media_type: str) -> None:
    @app.get(path, include_in_schema=False)
    async def client() -> FileResponse:
        return FileResponse(file, media_type=media_type)
