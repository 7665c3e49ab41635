"""Domains of installed packages, found by their entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import program
from decide.ads_service import start_service
from decide.both_storages import replay_folder
from decide.custom.conftest import Write
from decide.custom.test_serving import play
from townlet.decide.domains import DOMAINS, bandit_ads
from townlet.errors import TownletError

TARGETS = {
    "forest": "forest_package",
    "night-ads": "full_package:DOMAIN",
    "lost": "no_such_module",
    "odd": "json:loads",
    "renamed": "forest_package",
    "unfinished": "unfinished_package",
}


@pytest.fixture(autouse=True)
def packages(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "forest_package.py").write_text(Path(write('"my-game"', '"forest"')).read_text())
    (folder / "unfinished_package.py").write_text('name = "unfinished"\n')
    (folder / "full_package.py").write_text(
        "from townlet.decide.domains.bandit_ads import BanditAds\n"
        "class NightAds(BanditAds):\n    name = 'night-ads'\nDOMAIN = NightAds()\n"
    )
    for name, target in TARGETS.items():
        info = folder / f"{name.replace('-', '_')}_domains-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-domains\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[townlet.domains]\n{name} = {target}\n")
    monkeypatch.syspath_prepend(folder)


def test_module_in_the_simple_form_serves_and_replays(tmp_path: Path) -> None:
    service, training, _ = start_service(tmp_path / "service", domain="forest")
    play(service, training, 40)
    service.close()
    del DOMAINS["forest"]  # a replay finds it by the name in the log
    assert all(version.same for version in replay_folder(tmp_path / "service"))


def test_object_in_the_full_form_is_used_as_it_is() -> None:
    assert isinstance(DOMAINS["night-ads"], bandit_ads.BanditAds)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lost", r"'lost' cannot be used; .*package lost-domains cannot be loaded: ModuleNotFoundError: No module"),
        ("odd", r"'odd' cannot be used; json:loads of the installed package odd-domains is neither a module nor"),
        ("renamed", r"'renamed' cannot be used; it is called 'forest', but its entry point .* 'renamed'"),
        ("unfinished", r"unfinished_package\.py: `actions` is missing"),
        ("forrest", r"no domain is called 'forrest'; did you mean 'forest'\?"),
        ("zzz", r"known: bandit-ads, forest, hive, lost, night-ads, odd, rank, renamed, unfinished"),
    ],
)
def test_broken_package_affects_only_its_own_domain(name: str, message: str) -> None:
    with pytest.raises(TownletError, match=message):
        DOMAINS[name]
    assert DOMAINS["forest"].n_actions == 4


def test_help_lists_installed_domains(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    townlet = program(capsys, monkeypatch, "decide")
    for command in ("serve", "simulate"):
        text = " ".join(townlet(command, "--help").out.split())
        assert "Domains: bandit-ads, hive, rank; from installed packages: forest, lost, night-ads" in text
