"""Results of the lessons over five seeds: `python benchmarks/lessons.py [LESSON …]`.

Writes `results.json`, the table in `README.md` and `figure.svg` of each lesson, and the list in docs/lessons.md, and
checks what the lessons claim.
`--check` only checks the stored results and the numbers in the texts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from townlet.lessons.figure import figure_size, paint_figure
from townlet.lessons.measures import failed_expectations, wrong_intervals
from townlet.lessons.results import (
    Results,
    lesson_table,
    read_results,
    results_of,
    unsupported_numbers,
    write_results,
)
from townlet.lessons.schema import Lesson, find_lesson, shipped_lessons
from townlet.lessons.training import train_lesson
from townlet.runs import disk, plots

SEEDS = (1, 2, 3, 4, 5)


def measure(lesson: Lesson, machine: str, processes: int) -> Results:
    """Train all arms with all seeds, store the results, and draw the figure."""
    with tempfile.TemporaryDirectory() as root:
        start = time.monotonic()
        trained = train_lesson(lesson, Path(root), SEEDS, processes)
        seconds = (time.monotonic() - start) * lesson.seeds / len(SEEDS)
        command = f"python benchmarks/lessons.py {lesson.name}"
        results = results_of(trained, command, machine, SEEDS, seconds)
        write_results(lesson, results)
        paint = paint_figure(lesson, trained.runs)
        figure = plots.draw(f"lesson-{lesson.name}", lesson.title, figure_size(lesson), paint)
        disk.replace_file(lesson.folder / "figure.svg", figure.standalone())
    return results


def problems(lesson: Lesson, results: Results) -> list[str]:
    """Everything in which results and text differ from what the lesson claims."""
    found = failed_expectations(lesson, results.values) + wrong_intervals(lesson, results.values)
    return found + [f"README.md: {number} is not a result" for number in unsupported_numbers(lesson, results)]


def main() -> None:
    """Measure or check the named lessons, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lessons", nargs="*")
    parser.add_argument("--check", action="store_true", help="only check the stored results")
    parser.add_argument("--machine", default=f"{os.cpu_count()} cores", help="the machine, as named in the tables")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    lessons = [find_lesson(name) for name in arguments.lessons] or list(shipped_lessons())
    wrong = 0
    for lesson in lessons:
        results = read_results(lesson) if arguments.check else measure(lesson, arguments.machine, arguments.jobs)
        found = ["not measured yet"] if results is None else problems(lesson, results)
        print(f"{lesson.name}: {'; '.join(found) or 'as expected'}", flush=True)
        wrong += bool(found)
    page = Path(__file__).parents[1] / "docs" / "lessons.md"
    before, rest = page.read_text(encoding="utf-8").split("<!-- lessons -->\n", 1)
    after = rest.split("<!-- end of lessons -->", 1)[1]
    text = f"{before}<!-- lessons -->\n{lesson_table()}\n<!-- end of lessons -->{after}"
    disk.replace_file(page, text.encode())
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
