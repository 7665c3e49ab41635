"""The card of a published agent: what it is, what it was measured to do, and how to train and play it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ruamel.yaml import YAML

from townlet.runs import summary_text
from townlet.runs.markup import code_block, escape_markdown, table_row, table_rule
from townlet.tasks.eval_tables import Measured
from townlet.train.policies import TrainedPolicy

LIBRARY: Final = "townlet"
TASK: Final = "reinforcement-learning"
# What each file of the folder is; README.md itself is not listed.
FILE_DESCRIPTIONS: Final = {
    "policy.safetensors": "the network that acts; its metadata says what another program must know",
    "resolved.yaml": "the recipe with every setting and where it came from",
    "results.json": "all that was measured",
    "curve.png": "the learning curve",
    "replay.mp4": "an episode, filmed",
}


def user_files(trained: TrainedPolicy) -> list[str]:
    """Files of the user's own that an agent needs wherever it plays."""
    return trained.loaded.recipe.user_files


@dataclass(frozen=True)
class ModelCard:
    """README.md of a published run, as the Hugging Face Hub reads it."""

    trained: TrainedPolicy
    found: Measured
    files: Sequence[str]  # that are there
    unfilmed: str = ""  # why there is no film

    @property
    def title(self) -> str:
        """The agent and where it lives."""
        recipe = self.trained.loaded.recipe
        return f"{recipe.agent.name} in {recipe.env}"

    def about(self) -> dict[str, Any]:
        """The front matter: library, tags and measured results."""
        recipe, told = self.trained.loaded.recipe, self.found.figures()["trained"]
        metric = "mean_length" if recipe.gym is None else "mean_reward"
        result = {
            "task": {"type": TASK, "name": TASK},
            "dataset": {"name": recipe.env, "type": recipe.env},
            "metrics": [{"type": metric, "value": round(float(told["mean"]), 4), "name": metric, "verified": False}],
        }
        return {
            "library_name": LIBRARY,
            "pipeline_tag": TASK,
            "tags": [TASK, "deep-reinforcement-learning", LIBRARY, recipe.env, recipe.agent.name],
            "model-index": [{"name": f"{recipe.agent.name}-{recipe.env}", "results": [result]}],
        }

    def text(self) -> str:
        """The whole card."""
        trained, meta = self.trained, self.trained.run.meta()
        page = io.StringIO()
        writer = YAML(typ="safe")
        writer.default_flow_style = False
        writer.dump(self.about(), page)
        parts = [
            "---\n" + page.getvalue() + "---\n",
            f"# {escape_markdown(self.title)}\n",
            escape_markdown(
                trained.loaded.recipe.description or f"Trained by the recipe {trained.loaded.recipe.title}."
            )
            + "\n",
            escape_markdown(" ".join(self.found.sentences())) + "\n",
            *self._pictures(),
            "## Results\n",
            *self._tables(),
            escape_markdown(f"Measured after {trained.env_steps:,} env_steps with seeds that training never saw.")
            + "\n",
            "## Train it again\n",
            "\n".join(code_block(summary_text.rerun_command(meta), "sh")) + "\n",
            "## Play and measure it\n",
            "In the folder of these files, where Townlet is installed:\n",
            "\n".join(code_block(f"townlet play .{self.permission}\ntownlet eval .{self.permission}", "sh")) + "\n",
            "## Files\n",
            "\n".join(f"- [{name}]({name}): {FILE_DESCRIPTIONS[name]}" for name in self.files) + "\n",
        ]
        return "\n".join(parts)

    @property
    def permission(self) -> str:
        """What must be added to a command that plays it: it may bring code that its reader should read first."""
        return " --allow-code" if user_files(self.trained) else ""

    def _pictures(self) -> list[str]:
        shown = ["![The learning curve](curve.png)\n"] if "curve.png" in self.files else []
        if "replay.mp4" in self.files:
            return [*shown, "[An episode, filmed](replay.mp4)\n"]
        return [*shown, escape_markdown(f"There is no video: {self.unfilmed}.") + "\n"] if self.unfilmed else shown

    def _tables(self) -> list[str]:
        found = []
        for sheet in self.found.sheets():
            lines = [table_row(sheet.headings), table_rule(len(sheet.headings)), *map(table_row, sheet.rows)]
            found.append(f"{escape_markdown(sheet.title)}\n\n" + "\n".join(lines) + "\n")
        return found
