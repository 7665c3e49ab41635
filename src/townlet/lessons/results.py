"""The last measurement of a lesson over several seeds, its table, and the numbers that the text may use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import Field

from townlet.config.models import StrictModel
from townlet.errors import TownletError
from townlet.lessons.measures import summarize
from townlet.lessons.schema import Lesson, shipped_lessons
from townlet.lessons.training import LessonRuns
from townlet.runs import disk

BEGIN: Final = "<!-- results: written by benchmarks/lessons.py -->"
END: Final = "<!-- end of results -->"
NUMBER: Final = re.compile(r"(?<![\w.])[−-]?\d[\d,]*(?:\.\d+)?%?")
# Parts of a text whose numbers are not results: code, links, titles of papers, and the generated table.
NOT_RESULTS: Final = re.compile(
    rf"```.*?```|`[^`\n]*`|\]\([^)]*\)|{re.escape(BEGIN)}.*?{re.escape(END)}|^## Further reading.*\Z|^\d+\. ",
    re.DOTALL | re.MULTILINE,
)


class Results(StrictModel):
    """Values by arm and measure, one for each seed, and the seconds of each training."""

    command: str
    machine: str
    seeds: tuple[int, ...]
    values: dict[str, dict[str, tuple[float, ...]]]
    seconds: dict[str, tuple[float, ...]]
    lesson_seconds: float = Field(description="Duration of `townlet lesson`, as measured.")


def results_of(trained: LessonRuns, command: str, machine: str, seeds: tuple[int, ...], seconds: float) -> Results:
    """The results of trained runs."""
    values = {arm: {name: tuple(v) for name, v in by.items()} for arm, by in trained.values.items()}
    times = {arm: tuple(round(t, 1) for t in times) for arm, times in trained.seconds.items()}
    return Results(
        command=command, machine=machine, seeds=seeds, values=values, seconds=times, lesson_seconds=round(seconds, 1)
    )


def read_results(lesson: Lesson) -> Results | None:
    """The stored results; None if the lesson was never measured."""
    if not lesson.results_file.is_file():
        return None
    try:
        return Results.model_validate_json(lesson.results_file.read_bytes())
    except ValueError as error:
        fix = f"measure it again: python benchmarks/lessons.py {lesson.name}"
        raise TownletError(f"the results are damaged: {error}", fix, lesson.results_file) from None


def write_results(lesson: Lesson, results: Results) -> None:
    """Store results, and update the table in the lesson's text."""
    content: Mapping[str, Any] = results.model_dump(mode="json")
    disk.replace_file(lesson.results_file, (json.dumps(content, indent=1) + "\n").encode())
    text = lesson.text_file.read_text(encoding="utf-8")
    disk.replace_file(lesson.text_file, with_table(text, results_table(lesson, results)).encode())


def results_table(lesson: Lesson, results: Results) -> str:
    """The results as Markdown: for every arm the IQM of each measure with its interval, and the seconds."""
    names = list(lesson.measures)
    labels = [lesson.measures[name].label for name in names]
    lines = [f"| | {' | '.join(labels)} | seconds |", f"|---|{'---:|' * (len(names) + 1)}"]
    for arm, spec in lesson.arms.items():
        cells = []
        for name in names:
            text, found = lesson.measures[name].text, summarize(results.values[arm][name])
            cells.append(f"**{text(found.iqm)}** ({text(found.low)} to {text(found.high)})")
        times = results.seconds[arm]
        lines.append(f"| {spec.label} | {' | '.join(cells)} | {min(times):.0f} to {max(times):.0f} |")
    seeds = f"{len(results.seeds)} seeds"
    note = f"Interquartile mean over {seeds} with its 95% interval: `{results.command}` on {results.machine}."
    return "\n".join([*lines, "", note])


def lesson_table() -> str:
    """All lessons with their question and duration, for docs/lessons.md."""
    lines = ["| | Lesson | Question | Time |", "|---:|---|---|---:|"]
    for lesson in shipped_lessons():
        results, folder = read_results(lesson), f"../src/townlet/lessons/{lesson.name}"
        duration = f"{results.lesson_seconds:.0f} s" if results else "–"
        title = f"[{lesson.title}]({folder}/README.md)"
        lines.append(f"| {lesson.number} | {title}: `{lesson.name}` | {lesson.question} | {duration} |")
    return "\n".join(lines)


def with_table(text: str, table: str) -> str:
    """The text with this table between its markers."""
    if BEGIN not in text or END not in text:
        raise TownletError("the text has no place for the results", f"add the lines {BEGIN} and {END}")
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.split(END, 1)[1]}"


def unsupported_numbers(lesson: Lesson, results: Results) -> list[str]:
    """Numbers in the text that are neither results nor settings in the lesson's files."""
    settings = (lesson.folder / "recipe.yaml").read_text(encoding="utf-8")
    settings += (lesson.folder / "lesson.yaml").read_text(encoding="utf-8")
    known = {*_formatted(lesson, results), *map(_plain, NUMBER.findall(settings))}
    known |= {str(number) for number in range(11)}  # counts that are part of the language
    prose = NOT_RESULTS.sub(" ", lesson.text_file.read_text(encoding="utf-8"))
    return [number for number in NUMBER.findall(prose) if _plain(number) not in known]


def _formatted(lesson: Lesson, results: Results) -> Iterator[str]:
    """Every result as text: values of single seeds, and IQM and interval of each arm, also rounded to integers."""
    yield str(len(results.seeds))
    for by_measure in results.values.values():
        for name, values in by_measure.items():
            for value in (*values, *summarize(values)):
                text = lesson.measures[name].text(value)
                yield _plain(text)
                yield _plain(f"{value:z.0f}")
                yield _plain(f"{value:z.1f}")


def _plain(number: str) -> str:
    """A number in one notation: "−1,000" as "-1000"; exponents and signs of zero are as written."""
    return number.replace("−", "-").replace(",", "").rstrip(".")
