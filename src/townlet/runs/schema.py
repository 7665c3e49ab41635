"""The tables of the metrics store as data. Every row says at which env_steps it was true, so that it can be undone."""

from __future__ import annotations

from typing import Final

APPLICATION: Final = 0x746F776E  # "town", in the header of the file
VERSION: Final = 4
GROUPS: Final = "row_groups"  # checksums of the rows of each flush, by table; see `integrity`
WALL: Final = "wall"  # seconds of the wall clock: in every table, and in no comparison of two runs

_MOMENT: Final = {"env_steps": "INTEGER", "updates": "INTEGER"}
_SPREAD: Final = ("mean", "min", "max", "p10", "p50", "p90")

# table → column → type. JSON is kept as text. The name of a column is the name of the figure everywhere.
_FIGURES: Final[dict[str, dict[str, str]]] = {
    "episodes": {  # finished ones; above the rate a sample of them
        **_MOMENT,
        "row": "INTEGER",
        "start": "INTEGER",  # env_steps when it began
        "length": "INTEGER",
        "return": "REAL",
        "extrinsic": "REAL",
        "intrinsic": "REAL",
        "stage": "INTEGER",
        "epsilon": "REAL",
        "cause": "TEXT",  # of death; "time" when the limit ended it
        "meters": "JSON",  # {meter: final value}
    },
    "episode_intervals": {  # all episodes that ended in (start, env_steps]
        **_MOMENT,
        "start": "INTEGER",
        "count": "INTEGER",
        **{f"length_{what}": "REAL" for what in _SPREAD},
        **{f"return_{what}": "REAL" for what in _SPREAD},
        "extrinsic": "REAL",
        "intrinsic": "REAL",
        "causes": "JSON",  # {cause: count}
        "stages": "JSON",  # {stage: count}
        "meters": "JSON",  # {meter: mean final value}
    },
    # One row for each figure: a chart reads one name through one index, and a new agent needs no new column.
    "updates": {**_MOMENT, "name": "TEXT", "value": "REAL"},
    "affordance_visits": {"env_steps": "INTEGER", "affordance": "TEXT", "count": "INTEGER"},
    "affordance_transitions": {"env_steps": "INTEGER", "from": "TEXT", "to": "TEXT", "count": "INTEGER"},
    "cell_visits": {"env_steps": "INTEGER", "cell": "INTEGER", "count": "INTEGER", "novelty": "REAL"},
    "stage_changes": {
        **_MOMENT,
        "row": "INTEGER",
        "from_stage": "INTEGER",
        "to_stage": "INTEGER",
        "reason": "TEXT",
        "survival": "REAL",
        "progress": "REAL",
        "entropy": "REAL",
    },
    "recordings": {  # a few whole lives
        **_MOMENT,
        "kind": "TEXT",  # why it is kept
        "row": "INTEGER",
        "length": "INTEGER",
        "stage": "INTEGER",
        "cause": "TEXT",
        "return": "REAL",
        "outputs": "TEXT",  # "values" or "probabilities"
        "data": "BLOB",  # see townlet.town.record.episode_recorder.Recording
    },
    "setting_changes": {  # of the agent, while it trained
        **_MOMENT,
        "key": "TEXT",
        "old": "JSON",  # a value as in a recipe: a number, or a schedule
        "new": "JSON",
        "why": "TEXT",
    },
    "alerts": {**_MOMENT, "name": "TEXT", "message": "TEXT", "tip": "TEXT", "value": "REAL"},
    "evaluations": {
        **_MOMENT,
        "policy": "TEXT",  # "greedy", or "random" for the yardstick
        "episodes": "INTEGER",
        "limit": "INTEGER",  # the longest possible life
        "length": "REAL",
        "length_min": "REAL",
        "length_max": "REAL",
        "return": "REAL",
        "survived": "REAL",  # share of lives that reached the limit
        "works": "REAL",  # share of lives that earned money
        "score": "REAL",  # what decides which checkpoint is the best
        "causes": "JSON",
        "meters": "JSON",
    },
}
TABLES: Final = {name: {**columns, WALL: "REAL"} for name, columns in _FIGURES.items()}


def statements() -> list[str]:
    """SQL that makes the tables, each with an index by moment (and by name where a chart asks for one)."""
    made = []
    for table, columns in TABLES.items():
        fields = ", ".join(
            f'"{column}" {"TEXT" if kind == "JSON" else kind}{" NOT NULL" if column == "env_steps" else ""}'
            for column, kind in columns.items()
        )
        made.append(f'CREATE TABLE "{table}" ({fields})')
        made.append(f'CREATE INDEX "{table}_moment" ON "{table}" ("env_steps")')
    made.append(
        f'CREATE TABLE "{GROUPS}" ("table" TEXT NOT NULL, "first" INTEGER NOT NULL, "last" INTEGER NOT NULL, '
        '"env_steps" INTEGER NOT NULL, "digest" BLOB NOT NULL)'
    )
    made.append(f'CREATE INDEX "{GROUPS}_table" ON "{GROUPS}" ("table")')
    made.append('CREATE INDEX "updates_name" ON "updates" ("name", "env_steps", "value")')
    return made


def insertion(table: str) -> str:
    """SQL that adds one row."""
    columns = ", ".join(f'"{column}"' for column in TABLES[table])
    return f'INSERT INTO "{table}" ({columns}) VALUES ({", ".join("?" * len(TABLES[table]))})'
