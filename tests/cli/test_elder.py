"""The shipped run, which can be played before anything is trained."""

from __future__ import annotations

import json
from pathlib import Path

from cli.program import Program
from townlet.runs.folder import SHIPPED, Run


def test_elder_survives_and_works(townlet: Program, tmp_path: Path) -> None:
    done = townlet("eval", "elder", "--episodes", "10", "--json", "--root", str(tmp_path))
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["trained"]["mean"] >= 1900
    assert found["trained"]["earns_money"] == 1.0


def test_elder_survives_where_a_place_is_replaced_by_another(townlet: Program, tmp_path: Path) -> None:
    """With as many places as in training, one class must not be taken for the next."""
    world = tmp_path / "swap.yaml"
    cafe = "{name: Cafe Mia, cell: [3, 5], price: .02, each_tick: {mood: .1}}"
    world.write_text(f"extends: town\naffordances: [{cafe}]\nremove: [Bar]\n", encoding="utf-8")
    done = townlet("eval", "elder", "--world", str(world), "--episodes", "10", "--root", str(tmp_path))
    assert done.code == 0, done.err
    assert "It cannot see Cafe Mia and knows Bar only from its training: it was trained in town." in done.out
    assert "This agent survives 500 of 500 steps" in done.out
    data = townlet("eval", "elder", "--world", str(world), "--episodes", "2", "--json", "--root", str(tmp_path)).out
    assert (json.loads(data)["unobserved"], json.loads(data)["missing"]) == (["Cafe Mia"], ["Bar"])


def test_elder_is_small_and_has_a_model_card() -> None:
    files = [path for path in (SHIPPED / "elder").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_000_000
    assert "library_name: townlet" in (SHIPPED / "elder" / "README.md").read_text(encoding="utf-8")
    assert not [
        path for path in files if path.suffix not in {".md", ".json", ".yaml", ".png", ".safetensors", ".sha256"}
    ]


def test_shipped_run_is_listed_as_published_and_suggested(townlet: Program, tmp_path: Path) -> None:
    shown = townlet("runs", "show", "elder", "--root", str(tmp_path)).out
    assert "published" in shown
    assert "problem" not in shown
    assert "did you mean 'elder'?" in townlet("play", "eldr", "--root", str(tmp_path)).err
    assert "use a shipped one: elder" in townlet("eval", "latest", "--root", str(tmp_path)).err


def test_user_run_takes_precedence_over_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "elder").mkdir()
    (tmp_path / "elder" / "meta.json").write_text("{}", encoding="utf-8")
    assert Run.open("elder", tmp_path).path.parent == tmp_path
    assert Run.open("elder", tmp_path / "elsewhere").path.parent == SHIPPED
