"""Mistakes in the file of a domain: one line, with the line of the file, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import program
from decide.custom.conftest import Write
from townlet.config import user_code
from townlet.decide.domains import DOMAINS
from townlet.errors import TownletError

SHIELD = '        observation["shield"],\n'
RETURN_OUTCOME = 'return {"damage": damage'


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (["def features(observation):", "def features(observation:"], "23:13: .*SyntaxError: '.' was never closed"),
        (["HEROES = [", "HEROES = OTHERS + ["], "20: .*NameError: name 'OTHERS' is not defined"),
        (['name = "my-game"', "import sys; sys.exit(3)"], "9: .*SystemExit: 3"),
        (['name = "my-game"\n', ""], "`name` is missing; .*name = "),
        (['name = "my-game"\n', 'name = "My Game"\n'], "9: `name` is 'My Game'; .*lower-case"),
        (['name = "my-game"\n', 'name = "hive"\n'], "'hive' is included in Townlet"),
        (["actions = [", "action = ["], "`actions` is missing; write for example: actions = "),
        (['["club", "throw", "charge", "roar"]', "1"], "12: `actions` is 1; write 2 to 1000"),
        (['["club", "throw", "charge", "roar"]', '["club", "club"]'], "12: `actions` is .*different names"),
        (["observation = {", "observations = {"], "`observation` is missing"),
        (['"stones": 3, "hero"', '"stones": None, "hero"'], "15: .*'stones' is None, from which no type follows"),
        (['"stones": 3, "hero"', '"stones": [], "hero"'], "15: .*the list 'stones' is empty"),
        (['"stones": 3, "hero"', '"timestamp": 3, "hero"'], "15: .*every message has a field 'timestamp'"),
        (["def features", "def feature"], r"`features` is missing; .*def features\(observation\): return"),
        (["def features(observation)", "def features()"], "23: `features` must take one argument"),
        ([SHIELD, "        'high',\n"], "23: features returned .*'high'.*, not a list of numbers"),
        ([SHIELD, "        float('nan'),\n"], "23: features returned nan as number 2 of 6"),
        ([SHIELD, "        1e30,\n"], "23: features returned 1e.30 as number 2 of 6; .*1,000,000"),
        ([SHIELD, "        *range(int(observation['stones'])),\n"], "23: features returned . numbers instead of 8"),
        ([SHIELD, "        id(object()), id(observation),\n"], "23: features returned"),
        ([SHIELD, "        1 / (observation['stones'] - 3),\n"], "27: features failed: ZeroDivisionError"),
        ([SHIELD, "        observation['sheild'],\n"], "27: features failed: KeyError: 'sheild'"),
        ([SHIELD, "        exit(),\n"], "27: features failed: SystemExit"),
        ([SHIELD, "        [1, 2],\n"], "23: features returned .*, not a list of numbers"),
        (["return [action for", "return [[action] for"], "38: allowed returned the action"),
        (["def reward", "def rewards"], r"`reward` is missing; .*def reward\(outcome\)"),
        (['outcome["hurt"]) / 20', 'outcome["hurt"]) / 2'], "33: reward is 6 for the example; .*between -1 and 1"),
        (['return (outcome["damage"] - outcome["hurt"]) / 20', "return 'good'"], "33: reward returned 'good', not a"),
        (["def reward(outcome)", "def reward(a, b, c)"], "33: `reward` must take one argument or two"),
        (["def reward(outcome)", "def reward(before, after)"], "33: .*remove `outcome`"),
        (["return [action for", 'return ["jump"] + [action for'], "38: allowed returned the action 'jump'"),
        (['"stones": stones', '"stone": stones'], "43: the observation .* differs from the example: stones: Field req"),
        (['"hurt": hurt *', '"hurts": hurt *'], "43: the outcome .* differs from the example: hurt: Field required"),
        ([RETURN_OUTCOME, 'found = {"damage": damage'], "43: `Game.act` returned no outcome"),
        (['"roar": 10 if', '"shout": 10 if'], "60: Game.act failed: KeyError: 'roar'"),
        (["def __init__(self, rng)", "def __init__(self)"], "43: Game failed: TypeError"),
        (["def act(", "def do("], "43: `Game` has no method act"),
    ],
)
def test_mistake_is_one_line(write: Write, edits: list[str], message: str) -> None:
    file = write(*edits)
    with pytest.raises(TownletError, match=rf"^{file}:?{message}" if message[0].isdigit() else message) as caught:
        DOMAINS[file]
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).startswith(file)


def test_missing_file_and_missing_permission_are_explained(
    write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    townlet = program(capsys, monkeypatch, "decide")
    write('name = "my-game"', 'open("ran", "w"); name = "my-game"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(user_code, "_permitted", False)
    (tmp_path / "night.yaml").write_text("domain: my-game.py\n")
    for words in (
        ["serve", "my-game.py"],
        ["simulate", "my-game.py"],
        ["replay", "my-game.py"],
        ["serve", "night.yaml"],
    ):
        refused = townlet(*words)
        assert refused.code == 2
        assert "my-game.py contains code that would be run" in refused.err
        assert "add --allow-code if you trust it" in refused.err
        assert "Traceback" not in refused.err
    assert not (tmp_path / "ran").exists()
    missing = townlet("serve", "our-game.py", "--allow-code")
    assert "our-game.py: there is no such file" in missing.err
    assert "townlet decide new our-game.py" in missing.err
    assert "did you mean 'my-game.py'?" in townlet("serve", "my-game").err
