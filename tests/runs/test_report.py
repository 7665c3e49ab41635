"""Report of a run: results, plots of everything recorded, and escaped text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from townlet.runs import report, town_sections
from townlet.runs.curves import make_bins, read_episode_curve
from townlet.runs.folder import Run
from townlet.runs.metric_catalog import METRICS
from townlet.runs.metrics_reader import MetricsReader
from townlet.runs.metrics_store import MetricsStore
from townlet.runs.provenance import experiment_hash

EVIL = '<script>alert("x")</script> | `a` *b* $c$ [d](e) & _x'


def make(root: Path, **meta: Any) -> Run:
    return Run.create(root, "town", "ppo", "", "agent: ppo  # default\n", meta)


def fill(store: MetricsStore) -> None:
    """Record everything, with names that need escaping."""
    store.add("evaluations", {"env_steps": 0, "policy": "random", "length": 116.4})
    for moment, length in ((500, 200.0), (1000, 484.0)):
        greedy = {"policy": "greedy", "episodes": 100, "limit": 500, "length": length}
        fractions = {"survived": 0.25, "earns_money": 0.0}
        store.add("evaluations", {"env_steps": moment, **greedy, **fractions})
    count = 60
    store.add(
        "episodes",
        {
            "env_steps": list(range(10, 10 + 16 * count, 16)),
            "length": list(range(count)),
            "stage": [1 + i // 30 for i in range(count)],
            "cause": [EVIL if i % 3 else "time" for i in range(count)],
            "meters": [{EVIL: i / count} for i in range(count)],
        },
    )
    store.add("updates", {"env_steps": list(range(0, 1000, 100)), "name": f"meter_{EVIL}", "value": 0.5})
    store.add("updates", {"env_steps": list(range(10)), "name": "loss", "value": list(range(10))})
    store.add("updates", {"env_steps": 1000, "name": EVIL, "value": 0.5})
    store.add("affordance_transitions", {"env_steps": 1000, "from": "Bed", "to": [EVIL, "Job"], "count": 3})
    store.add("cell_visits", {"env_steps": 1000, "cell": [0, 63], "count": 5, "novelty": [0.5, 0.25]})
    store.add("alerts", {"env_steps": 900, "name": "loss", "message": EVIL})


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make(
        tmp_path_factory.mktemp("runs"),
        command=EVIL,
        seeds=[1, 2],
        machine={"cores": 2, "system": "Linux"},
        size=[8, 8],
        places={EVIL: 0, "Bed": 9},
        world="c0ffee",
        note=None,
        seconds=185.2,
        seed=7,
    )
    run.update_meta(created="2026-01-01T10:00:00+00:00")
    with MetricsStore(run.metrics_file) as store:
        fill(store)
    report.write_report(run)
    return run


def test_evaluations_have_readable_headings(full: Run) -> None:
    text = full.report_md.read_text()
    assert "| reach the limit | earn money |" in text
    assert "| 25 % | 0 % |" in text


def test_report_says_which_share_of_the_steps_is_counted(full: Run) -> None:
    text = full.report_md.read_text()
    assert "How many steps ended on each cell, in the whole run. Counted in 1 % of the steps." in text
    assert text.count("Counted in 1 % of the steps.") == 3  # visits, transitions and mean meters


def test_result_is_summarized_in_words(full: Run) -> None:
    text = full.report_md.read_text()
    assert "A random agent survives 116 steps. This agent survives 484 of 500 steps over 100 episodes" in text
    assert "25 % of its episodes reached the limit. It does not work: no evaluation episode earned money." in text
    assert "| machine | cores 2, system Linux |" in text
    assert "| seeds | 1, 2 |" in text


def test_first_table_shows_the_key_results(full: Run) -> None:
    lines = full.report_md.read_text().splitlines()
    top = next(at for at, line in enumerate(lines) if line.startswith("|"))
    names, values = ([cell.strip() for cell in lines[at].strip("|").split("|")] for at in (top, top + 2))
    assert dict(zip(names, values, strict=True)) == {
        "episode length, last evaluation": "484 of 500",
        "a random agent": "116 of 500",
        "reach the limit": "25 %",
        "earn money": "0 %",
        r"env\_steps": "1,000",
        "time": "3 min 5 s",
        "seed": "7",
        "recipe": "–",
    }
    assert "<dd>484 of 500</dd>" in full.report_html.read_text()


def test_report_contains_the_commands_to_reproduce_the_run(tmp_path: Path) -> None:
    run = make(
        tmp_path,
        recipe_argument="my town.yaml:dqn",
        overrides=["network.hidden=[16]"],
        resumed_with=["budget.minutes=9"],
    )
    MetricsStore(run.metrics_file).close()
    first = "townlet train 'my town.yaml:dqn' 'network.hidden=[16]'"
    then = "townlet train --resume latest budget.minutes=9"
    assert f"```sh\n{first}\n{then}\n```" in report.write_report(run)[0].read_text()


def test_hashes_of_world_and_recipe_are_shown(full: Run) -> None:
    text = full.report_md.read_text()
    assert "| world (sha256) | c0ffee |" in text
    assert f"| recipe without seed (sha256) | {experiment_hash(full)} |" in text


def test_cell_plot_has_the_shape_of_the_map_and_names_its_affordances() -> None:
    """Cell x + width·y is in column x and row y, and contains the name of its affordance."""
    plot = town_sections.cells_plot({0: 11, 3: 22, 4: 33}, [4, 2], {"Bed": 4}, "cells", "visits")
    assert plot is not None
    texts = ElementTree.fromstring(plot.standalone()).iter("{http://www.w3.org/2000/svg}text")
    at = {"".join(text.itertext()).strip(): (float(text.attrib["x"]), float(text.attrib["y"])) for text in texts}
    origin, right, below = at["11"], at["22"], at["33"]
    assert right[1] == origin[1]
    assert below[0] == origin[0]
    width, height = right[0] - origin[0], below[1] - origin[1]
    assert width == pytest.approx(3 * height, rel=0.02)
    assert at["Bed"][0] == pytest.approx(below[0], abs=height / 4)
    assert 0 < below[1] - at["Bed"][1] < height


def test_run_without_curriculum_shows_no_stages(tmp_path: Path) -> None:
    run = make(tmp_path)
    with MetricsStore(run.metrics_file) as store:
        store.add("episodes", {"env_steps": [1, 2], "length": 3, "stage": 0, "cause": ["energy", "time"]})
    text = report.write_report(run)[0].read_text()
    assert "tage" not in text
    assert "plots/causes.svg" in text


def test_single_cause_of_death_is_written_as_a_sentence(tmp_path: Path) -> None:
    run = make(tmp_path)
    with MetricsStore(run.metrics_file) as store:
        store.add("episodes", {"env_steps": [1, 2], "length": 3, "stage": 1, "cause": "energy"})
    text = report.write_report(run)[0].read_text()
    assert "All episodes that ended have the same cause: energy." in text
    assert "All episodes that ended have the same stage: 1." in text


def test_stage_changes_are_listed_with_their_reason(tmp_path: Path) -> None:
    run = make(tmp_path)
    with MetricsStore(run.metrics_file) as store:
        change = {"row": 3, "from_stage": 1, "to_stage": 2, "reason": "survival 0.9 > 0.7"}
        store.add("stage_changes", {"env_steps": list(range(60)), **change})
    text = report.write_report(run)[0].read_text()
    assert "The last 50 of 60 changes." in text
    assert text.count(r"| 3 | 1 | 2 | survival 0.9 \> 0.7 |") == 50


def test_plots_of_an_older_report_are_removed(tmp_path: Path) -> None:
    run = make(tmp_path)
    MetricsStore(run.metrics_file).close()
    run.plots.mkdir()
    (run.plots / "stages.svg").write_text("old", encoding="utf-8")
    report.write_report(run)
    assert list(run.plots.iterdir()) == []


@pytest.mark.parametrize(
    ("earns_money", "words"),
    [
        (1.0, "It earns money in every evaluation episode"),
        (0.4, "It earns money in 40 % of the evaluation episodes"),
        (None, "survives 99"),
    ],
)
def test_fraction_of_working_episodes_is_described(earns_money: float | None, words: str, tmp_path: Path) -> None:
    run = make(tmp_path)
    with MetricsStore(run.metrics_file) as store:
        row = {"policy": "greedy", "length": [200.0, 99.0], "earns_money": earns_money}
        store.add("evaluations", {"env_steps": [1, 2], **row})
    text = report.write_report(run)[0].read_text()
    assert words in text
    assert ("earns money" in text) == (earns_money is not None)
    assert r"An earlier evaluation was better: 200 steps at 1 env\_steps." in text


def test_earlier_return_of_zero_can_be_the_best(tmp_path: Path) -> None:
    run = make(tmp_path, gym="hash")
    with MetricsStore(run.metrics_file) as store:
        store.add("evaluations", {"env_steps": [1, 2], "policy": "greedy", "return": [0.0, -9.0]})
    assert r"An earlier evaluation was better: 0 at 1 env\_steps." in report.write_report(run)[0].read_text()


def test_every_plot_exists_and_is_valid_xml(full: Run) -> None:
    names = {
        "survival",
        "meters",
        "history",
        "stages",
        "causes",
        "transitions",
        "cells",
        "novelty",
        "learning",
    }
    assert {path.stem for path in full.plots.iterdir()} == names
    page, text = full.report_html.read_text(), full.report_md.read_text()
    assert page.count("<svg") == page.count("</svg>") == len(names)
    for name in names:
        assert f"(plots/{name}.svg)" in text
        ElementTree.fromstring((full.plots / f"{name}.svg").read_bytes())


def test_text_of_the_run_is_escaped(full: Run) -> None:
    page, text = full.report_html.read_text(), full.report_md.read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert" in page
    prose = re.sub(r"^(```+).*?^\1$", "", text, flags=re.M | re.S)  # in a block of code nothing is markup
    assert not re.search(r"(?<!\\)<script", prose)
    assert not re.search(r"(?<!\\)\[d", prose)
    rows = [line for line in text.splitlines() if line.startswith("| 900 |")]
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 5  # four cells, whatever the message contains


def test_page_is_self_contained_and_supports_dark_mode(full: Run) -> None:
    page = full.report_html.read_text()
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r'(src|href)="(?!#|data:)', re.sub(r'xmlns(:\w+)?="[^"]*"', "", page))
    assert "#0a0b0c" not in page
    assert "currentColor" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', page)) <= set(ids)


def test_same_run_gives_the_same_report(full: Run) -> None:
    before = full.report_html.read_bytes(), full.report_md.read_bytes()
    report.write_report(full)
    assert (full.report_html.read_bytes(), full.report_md.read_bytes()) == before


def test_empty_run_has_only_the_sections_run_and_settings(tmp_path: Path) -> None:
    run = make(tmp_path)
    MetricsStore(run.metrics_file).close()
    markdown, page = report.write_report(run)
    assert re.findall(r"^## (.*)$", markdown.read_text(), re.M) == ["Run", "Settings"]
    assert "The agent was not evaluated." in markdown.read_text()
    assert "<svg" not in page.read_text()


def test_run_without_evaluation_is_described(tmp_path: Path) -> None:
    run = make(tmp_path)
    with MetricsStore(run.metrics_file) as store:
        store.add("episodes", {"env_steps": list(range(100)), "length": [10] * 90 + [70] * 10})
    assert "The last training episodes lasted 70 steps on average." in report.write_report(run)[0].read_text()


def test_map_of_unknown_size_is_listed_as_a_table(tmp_path: Path) -> None:
    for size in (None, [], [-1, 3], [10**9, 10**9], [2, 2, 2]):
        run = make(tmp_path, size=size)
        with MetricsStore(run.metrics_file) as store:
            store.add("cell_visits", {"env_steps": 1, "cell": [0, 5], "count": [2, 3]})
        assert "| cell | visits |\n| --- | --- |\n| 5 | 3 |\n| 0 | 2 |" in report.write_report(run)[0].read_text()
    for size in ([8], [3, 2]):
        run = make(tmp_path, size=size)
        with MetricsStore(run.metrics_file) as store:
            store.add("cell_visits", {"env_steps": 1, "cell": [0, 5], "count": 2})
        assert "plots/cells.svg" in report.write_report(run)[0].read_text()


def test_episodes_within_an_interval_are_counted_once(tmp_path: Path) -> None:
    with MetricsStore(tmp_path / "metrics.db") as store:
        interval = {"count": 4, "length_mean": 10.0, "length_p10": 5.0, "length_p90": 20.0, "causes": {"energy": 4}}
        store.add("episode_intervals", {"env_steps": 200, "start": 100, **interval})
        store.add("episodes", {"env_steps": [100, 150, 200, 201], "length": [1, 10, 10, 30], "cause": "time"})
    with MetricsReader(tmp_path / "metrics.db") as reader:
        found = read_episode_curve(reader)
    assert found.env_steps.tolist() == [100, 200, 201]
    assert found.count.tolist() == [1, 4, 1]
    assert found.score.tolist() == [1, 10, 30]
    assert found.causes == [{"time": 1}, {"energy": 4}, {"time": 1}]
    part = make_bins(found.env_steps, 1)
    assert part.means(found.score, found.count).tolist() == [pytest.approx(71 / 6)]
    assert part.fractions(found.causes)["energy"].tolist() == [pytest.approx(4 / 6)]


def test_band_of_single_episodes_is_their_quantiles(tmp_path: Path) -> None:
    with MetricsStore(tmp_path / "metrics.db") as store:
        store.add("episodes", {"env_steps": [1] * 100 + [10] * 100, "length": [*range(1, 101), *range(201, 301)]})
        part = make_bins((found := read_episode_curve(store)).env_steps, 2)
    assert np.allclose(part.quantile(0.1, found), [10, 210], atol=1)
    assert np.allclose(part.quantile(0.9, found), [90, 290], atol=1)


def test_every_metric_is_described() -> None:
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.about
        assert metric.formula
    columns = {
        "episode_length",
        "episode_return",
        "extrinsic",
        "intrinsic",
        "epsilon",
        "stage",
        "intrinsic_reward",
        "earns_money",
    }
    assert columns <= set(METRICS)


def test_alerts_have_tips_and_setting_changes_have_both_values(tmp_path: Path) -> None:
    run = make(tmp_path)
    with MetricsStore(run.metrics_file) as store:
        store.add("alerts", {"env_steps": 900, "name": "kl high", "message": "it moved far", "tip": "lower agent.lr"})
        change = {"key": "lr", "old": {"start": 0.001, "end": 0.0}, "new": 0.0005, "why": "tune.yaml"}
        store.add("setting_changes", [{"env_steps": 1200, **change}])
    for path in report.write_report(run):
        text = path.read_text()
        assert "lower agent.lr" in text
        assert "Settings changed during training" in text
        assert "{start: 0.001, end: 0.0}" in text
        assert "0.0005" in text


def test_summary_is_the_result(tmp_path: Path) -> None:
    run = make(tmp_path, summary=["It survives 99.", "It earns money."])
    with MetricsStore(run.metrics_file) as store:
        store.add("evaluations", {"env_steps": [1, 2], "policy": "greedy", "length": [200.0, 99.0]})
    text = report.write_report(run)[0].read_text()
    assert "It survives 99. It earns money.\n" in text
    assert "This agent survives" not in text
