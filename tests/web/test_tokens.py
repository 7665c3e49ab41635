"""Access tokens: accepted files and variables, and the throttle against guessing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from townlet.decide.app import load_service_tokens
from townlet.decide.simulate import client_tokens
from townlet.errors import TownletError
from townlet.web.limits import TokenBucket
from townlet.web.tokens import (
    GUESS_SECONDS,
    MAX_ADDRESSES,
    MAX_GUESSES,
    ROLES,
    Identity,
    LoginThrottle,
    Tokens,
    environment_tokens,
    new_token,
    read_token_file,
)

SECRET = "do-not-show-this-to-anyone"
ANN = Identity("operator", "ann")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("GAME", "OPERATOR", "VIEWER"):
        monkeypatch.delenv(f"TOWNLET_{role}_TOKEN", raising=False)


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_token_file_names_games_and_operators(tmp_path: Path) -> None:
    text = "game: {eu: eu-plays-with-this, us: us-plays-with-this}\noperator: the-operator-has-this\n"
    tokens = Tokens(read_token_file(written(tmp_path / "t.yaml", text)))
    assert tokens.identify("us-plays-with-this") == ("game", "us")
    assert tokens.identify("the-operator-has-this") == ("operator", "operator")
    assert tokens.identify("us-plays-with-thi") is None
    assert tokens.identify("") is None
    assert tokens.first("viewer") is None


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (f"operator: {SECRET}", 0o644, "other users can read the token file; run: chmod 600"),
        (f"operator: {SECRET}", 0o620, "other users can read the token file"),
        ("operator: short-secret", 0o600, "is not 16 to 200 letters, digits"),
        (f"operator: '{SECRET} with spaces'", 0o600, "is not 16 to 200 letters, digits"),
        (f"operator: {SECRET}\nviewer: {SECRET}", 0o600, "the token of the viewer is used twice"),
        (f"game: {{a: {SECRET}, b: {SECRET}}}", 0o600, "the token of the game 'b' is used twice"),
        (f"game: {{'a b': {SECRET}}}", 0o600, "'a b' is not a valid game name"),
        ("operator: 1234567890123456", 0o600, "is not a string; write it in quotes"),
        ("operator: 12345678901234567890", 0o600, "tokens in quotes"),
        (f"operater: {SECRET}", 0o600, "there is no role 'operater'; did you mean 'operator'?"),
        (f"operator: [{SECRET}", 0o600, "not valid YAML or JSON"),
        (SECRET, 0o600, "not valid YAML or JSON"),
        ("", 0o600, "not valid YAML or JSON"),
    ],
)
def test_exposed_token_file_is_refused_without_showing_it(tmp_path: Path, text: str, mode: int, said: str) -> None:
    path = written(tmp_path / "t.yaml", text, mode)
    with pytest.raises(TownletError) as refused:
        read_token_file(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)
    assert SECRET not in str(refused.value)


def test_variables_are_checked_like_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment_tokens() == {}
    monkeypatch.setenv("TOWNLET_GAME_TOKEN", SECRET)
    assert environment_tokens() == {"game": {"game": SECRET}}
    monkeypatch.setenv("TOWNLET_VIEWER_TOKEN", SECRET)
    with pytest.raises(TownletError, match="used twice") as refused:
        environment_tokens()
    monkeypatch.setenv("TOWNLET_VIEWER_TOKEN", "short")
    with pytest.raises(TownletError, match="TOWNLET_VIEWER_TOKEN: the token of the viewer is not"):
        environment_tokens()
    assert SECRET not in str(refused.value)


def test_tokens_are_generated_once_and_readable_by_owner_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "decisions"
    first = load_service_tokens(folder, None)
    file = folder / "tokens.json"
    assert (first.new, first.stored, first.source) == (True, True, str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == ["tokens.json"]
    given = {role: first.tokens.first(role) for role in ROLES}
    assert json.loads(file.read_text()) == given
    again = load_service_tokens(folder, None)
    assert (again.new, {role: again.tokens.first(role) for role in ROLES}) == (False, given)
    assert client_tokens("ws://127.0.0.1:1/ws", folder, None)[0] == first.tokens.first("game")
    assert client_tokens("wss://play.example/ws", folder, None) == (None, None)  # local tokens only
    monkeypatch.setenv("TOWNLET_OPERATOR_TOKEN", SECRET)
    mixed = load_service_tokens(folder, None)
    assert mixed.tokens.first("operator") == SECRET
    assert mixed.tokens.first("game") == first.tokens.first("game")
    assert not mixed.stored
    assert SECRET not in file.read_text()


def test_symlink_instead_of_token_file_is_not_followed(tmp_path: Path) -> None:
    elsewhere = written(tmp_path / "elsewhere.json", json.dumps({role: new_token() for role in ("game", "operator")}))
    folder = tmp_path / "decisions"
    folder.mkdir()
    os.symlink(elsewhere, folder / "tokens.json")
    with pytest.raises(TownletError, match=r"tokens\.json is a symbolic link"):
        load_service_tokens(folder, None)


def test_foreign_folder_gets_no_tokens(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(TownletError, match="it contains thesis"):
        load_service_tokens(tmp_path, None)
    assert not (tmp_path / "tokens.json").exists()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_bucket_grants_rate_and_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(2.0, 5.0, clock)
    assert [bucket.take() for _ in range(7)] == [True] * 5 + [False] * 2
    clock.now += 1.0
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    clock.now += 1000.0
    assert [bucket.take() for _ in range(6)] == [True] * 5 + [False]


def test_guesses_are_limited_by_address() -> None:
    clock = Clock()
    throttle = LoginThrottle(clock)
    assert [throttle.allows("192.0.2.1", False, None) for _ in range(MAX_GUESSES + 1)] == [True] * MAX_GUESSES + [False]
    assert not throttle.allows("192.0.2.1", False, ANN)  # correct, but guessed
    assert throttle.allows("192.0.2.1", True, ANN)  # cookies have a separate allowance
    assert throttle.allows("192.0.2.1", False, ANN)  # now this identity is accepted there
    assert throttle.allows("192.0.2.2", False, ANN)
    clock.now += GUESS_SECONDS
    assert [throttle.allows("192.0.2.1", False, None) for _ in range(2)] == [True, False]
    for n in range(MAX_GUESSES):
        assert throttle.allows(f"2001:db8:1:1::{n:x}", False, None)
    assert not throttle.allows("2001:db8:1:1:ffff::1", False, None)  # one subscriber, one network
    for n in range(2 * MAX_ADDRESSES):
        throttle.allows(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", False, None)
    assert len(throttle._addresses) == MAX_ADDRESSES


def test_address_in_use_stays_accepted_among_many_others() -> None:
    throttle = LoginThrottle(Clock())
    assert throttle.allows("192.0.2.1", False, ANN)
    for n in range(MAX_ADDRESSES + 9):
        throttle.allows(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", False, None)
        if n == 9:
            assert throttle.allows("192.0.2.1", False, ANN)
    for _ in range(MAX_GUESSES):
        throttle.allows("192.0.2.1", False, None)
    assert throttle.allows("192.0.2.1", False, ANN)  # accepted earlier, so the guesses do not lock it out
