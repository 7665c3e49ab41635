"""The model card of a published agent: results, and how to train and play it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ruamel.yaml import YAML

from townlet.runs import summary_text
from townlet.runs.markup import code_block, escape_markdown, table_row, table_rule
from townlet.tasks.comparison import Comparison
from townlet.train.policies import TrainedPolicy

LIBRARY: Final = "townlet"
DEFAULT_LICENSE: Final = "mit"
TASK: Final = "reinforcement-learning"
# Description of each file except README.md.
FILE_DESCRIPTIONS: Final = {
    "policy.safetensors": "the policy network; its metadata describes inputs and outputs",
    "resolved.yaml": "the recipe with every setting and its origin",
    "results.json": "all evaluation results",
    "curve.png": "the learning curve",
    "replay.mp4": "a video of an episode",
}


@dataclass(frozen=True)
class ModelCard:
    """README.md of a published run, with front matter for the Hugging Face Hub."""

    trained: TrainedPolicy
    comparison: Comparison
    files: Sequence[str]  # in the folder
    seed: int  # of the evaluation
    video_error: str = ""  # why there is no video; "" if there is one
    license: str = DEFAULT_LICENSE  # of the weights, as the Hub names it

    def front_matter(self) -> dict[str, Any]:
        """Library, tags and results, as the Hugging Face Hub reads them."""
        recipe, metrics = self.trained.loaded.recipe, self.comparison.metrics()["trained"]
        metric = "mean_length" if recipe.gym is None else "mean_reward"
        result = {
            "task": {"type": TASK, "name": TASK},
            "dataset": {"name": recipe.env, "type": recipe.env},
            "metrics": [{"type": metric, "value": round(float(metrics["mean"]), 4), "name": metric, "verified": False}],
        }
        return {
            "license": self.license,
            "library_name": LIBRARY,
            "pipeline_tag": TASK,
            "tags": [TASK, "deep-reinforcement-learning", LIBRARY, recipe.env, recipe.agent.name],
            "model-index": [{"name": f"{recipe.agent.name}-{recipe.env}", "results": [result]}],
        }

    def text(self) -> str:
        trained, recipe, meta = self.trained, self.trained.loaded.recipe, self.trained.run.meta()
        evaluated = f"Evaluated: the {trained.label}, after {trained.env_steps:,} env_steps, with seed {self.seed}."
        page = io.StringIO()
        writer = YAML(typ="safe")
        writer.default_flow_style = False
        writer.dump(self.front_matter(), page)
        parts = [
            "---\n" + page.getvalue() + "---\n",
            "# " + escape_markdown(f"{recipe.agent.name} in {recipe.env}") + "\n",
            escape_markdown(recipe.description or f"Trained with the recipe {recipe.title}.") + "\n",
            escape_markdown(" ".join(self.comparison.sentences())) + "\n",
            *self._media(),
            "## Results\n",
            *self._tables(),
            escape_markdown(evaluated) + "\n",
            "## Train it again\n",
            "\n".join(code_block(summary_text.rerun_command(meta), "sh")) + "\n",
            "## Play and evaluate it\n",
            "In this folder, with Townlet installed:\n",
            "\n".join(code_block(f"townlet play .{self.code_option}\ntownlet eval .{self.code_option}", "sh")) + "\n",
            "## Files\n",
            "\n".join(f"- [{name}]({name}): {FILE_DESCRIPTIONS[name]}" for name in self.files) + "\n",
        ]
        return "\n".join(parts)

    @property
    def code_option(self) -> str:
        """The option that lets commands execute Python files in the folder; "" if there are none."""
        return " --allow-code" if self.trained.loaded.recipe.runs_code else ""

    def _media(self) -> list[str]:
        shown = ["![The learning curve](curve.png)\n"] if "curve.png" in self.files else []
        if "replay.mp4" in self.files:
            return [*shown, "[Video of an episode](replay.mp4)\n"]
        if self.video_error:
            shown.append(escape_markdown(f"There is no video: {self.video_error}.") + "\n")
        return shown

    def _tables(self) -> list[str]:
        texts = []
        for table in self.comparison.tables():
            lines = [table_row(table.headings), table_rule(len(table.headings)), *map(table_row, table.rows)]
            texts.append(f"{escape_markdown(table.title)}\n\n" + "\n".join(lines) + "\n")
        return texts
