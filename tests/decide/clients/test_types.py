"""Types of the JavaScript client: they fit the program, and the compiler refuses what the client would not accept."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from decide.clients.test_vectors import STATIC
from live.test_page_types import compiler

OPTIONS: Final = {
    "strict": True, "target": "ES2022", "module": "ES2022", "moduleResolution": "bundler", "types": [],
    "lib": ["ES2022", "DOM", "DOM.Iterable"], "noUncheckedIndexedAccess": True, "exactOptionalPropertyTypes": True,
}  # fmt: skip
GAME: Final = """
import { Client, NoAnswer, type ErrorAnswer } from './client.js';

interface RankResponse { readonly type: 'rank_response'; readonly rewardActionId: string }

export async function play(token: string): Promise<string> {
  const client = new Client('ws://127.0.0.1:8780/ws', { token, client: 'my-game', timeout: 5000, socket: WebSocket });
  try {
    const first = await client.request({ type: 'ping' });
    if (first.type !== 'pong') throw new Error(String(first['message']));
    const message = { type: 'rank_request', eventId: 'visit', actions: [{ id: 'a' }] };
    const answer = await client.request<RankResponse | ErrorAnswer>(message);
    return answer.type === 'error' ? `${answer.code}: ${answer.message}` : answer.rewardActionId;
  } catch (error) {
    return error instanceof NoAnswer ? `${error.name}: ${error.message} ${client.connections}` : 'unexpected';
  } finally {
    client.close();
  }
}
"""
MISTAKES: Final = """
import { Client } from './client.js';

// @ts-expect-error: a URL is needed
new Client();
// @ts-expect-error: there is no such option
new Client('ws://127.0.0.1/ws', { tokn: 'x' });
// @ts-expect-error: milliseconds are a number
const client = new Client('ws://127.0.0.1/ws', { timeout: '5 s' });
// @ts-expect-error: a message has a type
client.request({ eventId: 'visit' });
// @ts-expect-error: a message is an object, not its JSON
client.request('{"type": "ping"}');
// @ts-expect-error: the fields of an answer are unknown until they are checked
client.request({ type: 'ping' }).then((answer) => answer.ranking.length);
// @ts-expect-error: the queue is private
client.waiting.length;
"""
SAME: Final = """
import * as declared from './client.js';
import * as written from './emitted/client.js';

export const constructor: typeof declared.Client = written.Client;
export const error: typeof declared.NoAnswer = written.NoAnswer;
export const exported: Record<keyof typeof written, unknown> = declared;
"""


def tsc(folder: Path, *arguments: str) -> None:
    command = compiler()
    if command is None:
        pytest.skip("TypeScript is not installed (npm install --global typescript, or NODE_PATH)")
    done = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("client.js", "client.d.ts"):
        shutil.copy(STATIC / name, tmp_path)
    return tmp_path


def test_types_accept_a_game_and_refuse_mistakes(folder: Path) -> None:
    (folder / "game.ts").write_text(GAME, encoding="utf-8")
    (folder / "mistakes.ts").write_text(MISTAKES, encoding="utf-8")
    config = {"compilerOptions": OPTIONS | {"noEmit": True}, "files": ["game.ts", "mistakes.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(config), encoding="utf-8")
    tsc(folder, "--project", "tsconfig.json")


def test_types_describe_the_client(folder: Path) -> None:
    """The declarations that the compiler derives from the program are assignable to the written ones."""
    source = folder / "source"
    source.mkdir()
    shutil.copy(STATIC / "client.js", source)
    emit = ["--allowJs", "--declaration", "--emitDeclarationOnly", "--skipLibCheck", "--outDir", "emitted"]
    tsc(folder, *emit, "--target", "ES2022", "--module", "ES2022", "--moduleResolution", "bundler", "source/client.js")
    (folder / "same.ts").write_text(SAME, encoding="utf-8")
    config = {"compilerOptions": OPTIONS | {"noEmit": True, "skipLibCheck": True}, "files": ["same.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(config), encoding="utf-8")
    tsc(folder, "--project", "tsconfig.json")
