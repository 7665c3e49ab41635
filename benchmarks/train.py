"""Training speed, compared with Stable-Baselines3 at equal settings: `python benchmarks/train.py --json results.json`.

The same measurement as `townlet bench train`, with a description of the machine, as text to paste into RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim import machine, short
from townlet.bench.training import AGENTS, compare


def as_markdown(report: dict[str, Any]) -> str:
    """The report as a Markdown table."""
    about = ", ".join(f"{k} {v}" for k, v in report["machine"].items())
    lines = [f"Machine: {about}.", "", "| agent | library | rows | threads | wall best | wall median | CPU median |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for r in report["results"]:
        rates = " | ".join(short(r[k]) for k in ("best_per_wall_s", "median_per_wall_s", "median_per_cpu_s"))
        lines.append(f"| {r['subject']} | {r['engine']} | {r['rows']} | {r['threads']} | {rates} |")
    lines += [f"\n{agent}: {ratio:.2f} times as many steps/s." for agent, ratio in report["ratios"].items()]
    return "\n".join([*lines, *(f"\nSkipped: {reason}." for reason in report["skipped"])])


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--world", default="town")
    parser.add_argument("--agents", nargs="+", default=AGENTS, choices=AGENTS)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--threads", type=int, help="threads of torch and the town; all cores by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="per agent and library, over all rounds")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--no-sb3", action="store_true", help="measure only Townlet")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything as JSON")
    return parser.parse_args(arguments)


def main() -> None:
    o = parse()
    comparison = compare(o.world, o.agents, o.rows, o.threads, o.seconds, o.rounds, with_sb3=not o.no_sb3)
    report = {"machine": machine(), **comparison.as_json()}
    if o.json:
        o.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(as_markdown(report))


if __name__ == "__main__":
    main()
