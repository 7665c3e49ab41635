"""Export a policy as one file for use in another program: safetensors or ONNX."""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import torch
from safetensors.torch import save
from torch import Tensor, nn

from townlet.agents.registry import entry
from townlet.errors import TownletError
from townlet.interfaces.layout import ObservationLayout
from townlet.interfaces.vec_env import Continuous
from townlet.runs.disk import replace_file
from townlet.train.policies import TrainedPolicy, as_tensors, scale_obs

if TYPE_CHECKING:
    import onnx

    from townlet.interfaces.task import Scaling

Format = Literal["safetensors", "onnx"]
VERSION: Final = "1"
MASKED: Final = torch.finfo(torch.float32).min  # output of invalid actions; ONNX runtimes treat infinity differently
# Outputs of an ONNX graph besides the action, by kind of network output.
OUTPUTS: Final = {
    "values": ("values",),
    "discrete": ("logits",),
    "binary": ("logits",),
    "continuous": ("means", "stds"),
}
ACTION_RULE: Final = {
    "values": "one value per action in `actions`; take the valid action with the highest value.",
    "discrete": "one logit per action in `actions`; take the valid action with the highest logit.",
    "binary": "one logit per action in `actions`; an action is 1 where its logit is above 0.",
    "continuous": "the means of `actions`, then their log standard deviations; take the means, clipped to `bounds`.",
}
SCALING_README: Final = " First subtract `center`, divide by `scale` and clip to ± `limit`."
SAFETENSORS_README: Final = """\
The network of an agent trained with Townlet. Tensors have the names of the modules in townlet.nets; `network` and
`agent` describe how they are connected. Concatenate the blocks of `observation` in their order, as float32.{scaling} \
Outputs ({outputs}): {rule}"""
ONNX_README: Final = """\
An agent trained with Townlet. Inputs: obs [rows, {size}] float32, the concatenated blocks of `observation` as the \
environment returns them{mask}{hidden}. Outputs: {action}; {outputs}{next_hidden}."""
MASK_README: Final = "; mask [rows, {count}] bool, true for valid actions"
ACTION_README: Final = {
    "values": "action [rows] int64, an index into `actions`",
    "discrete": "action [rows] int64, an index into `actions`",
    "binary": "action [rows, {count}] int64, each 0 or 1",
    "continuous": "action [rows, {count}] float32, within `bounds`",
}


def export(trained: TrainedPolicy, form: Format, to: Path | None = None) -> Path:
    """Write the policy to a file, by default in the run's folder; returns its path."""
    converters: dict[str, Callable[[TrainedPolicy], bytes]] = {"safetensors": to_safetensors, "onnx": to_onnx}
    if form not in converters:
        raise TownletError(f"there is no format '{form}'", f"known: {', '.join(get_args(Format))}")
    path = to or trained.run.path / f"policy.{form}"
    if not path.parent.is_dir():
        raise TownletError(f"there is no folder {path.parent}", "create it first, or write elsewhere with --to")
    replace_file(path, converters[form](trained))
    return path


def metadata(trained: TrainedPolicy, layout: ObservationLayout) -> dict[str, str]:
    """Metadata for another program, as plain text or JSON; `layout` describes the observation to provide."""
    recipe, actions = trained.loaded.recipe, trained.actions
    blocks = [
        {"name": b.name, "start": b.start, "shape": b.shape, "low": _finite(b.low), "high": _finite(b.high),
         "kind": b.kind}
        for b in layout
    ]  # fmt: skip
    agent: dict[str, Any] = {"name": recipe.agent.name}
    agent |= {key: getattr(recipe.agent, key) for key in entry(recipe.agent.name).export_metadata}
    json_fields: dict[str, Any] = {
        "observation": blocks,
        "actions": actions.names,
        "network": recipe.network.model_dump(mode="json"),
        "agent": agent,
        "hidden": trained.hidden_size,
        "env_steps": trained.env_steps,
        "score": trained.info.get("score"),
    }
    if isinstance(actions, Continuous):
        json_fields["bounds"] = {"low": actions.low, "high": actions.high}
    text_fields = {
        "format": "townlet-policy",
        "version": VERSION,
        "outputs": _output_name(trained),
        "recipe": recipe.title,
        "run": trained.run.name,
        "world" if recipe.gym is None else "env": trained.loaded.task.name,
        "interface": trained.loaded.task.interface,
    }
    return text_fields | {name: json.dumps(value, allow_nan=False) for name, value in json_fields.items()}


def _output_name(trained: TrainedPolicy) -> str:
    """What the network returns: values, logits, binary (logits of binary actions) or continuous (means and stds)."""
    return "logits" if trained.kind == "discrete" else trained.kind


def _finite(bound: float) -> float | None:
    """A bound, or None if infinite: JSON has no infinity."""
    return bound if math.isfinite(bound) else None


def to_safetensors(trained: TrainedPolicy) -> bytes:
    """The network's tensors by name, described in the metadata."""
    raw = trained.loaded.task.raw_observation()
    readme = SAFETENSORS_README.format(
        outputs=_output_name(trained), rule=ACTION_RULE[trained.kind], scaling=SCALING_README if raw.scaling else ""
    )
    about = {"readme": readme, **metadata(trained, raw.layout)}
    if raw.scaling:
        parts = raw.scaling._asdict().items()
        about |= {name: json.dumps([_finite(float(number)) for number in part]) for name, part in parts}
    weights = {name: value.contiguous() for name, value in trained.network.state_dict().items()}
    return save(weights, metadata=about)


class GreedyStep(nn.Module):
    """One greedy step for N rows: obs [N, D], mask [N, K] → action, and the network's outputs.

    The action is [N] if it is one of K choices, else [N, A]; only the former takes a mask. A recurrent network also
    takes the hidden state [N, H] last and returns the next one last.
    """

    def __init__(self, trained: TrainedPolicy, scaling: Scaling | None) -> None:
        super().__init__()
        self.network, self.kind, self.recurrent = trained.network, trained.kind, trained.hidden_size > 0
        self.scaling = as_tensors(scaling)
        actions = trained.actions
        if isinstance(actions, Continuous):
            self.low, self.high = torch.tensor(actions.low), torch.tensor(actions.high)

    def forward(self, obs: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        obs = scale_obs(obs, self.scaling)
        before = rest[-1] if self.recurrent else obs.new_zeros((obs.shape[0], 0))
        outputs, after = self.network(obs, before)
        if self.kind in ("values", "discrete"):
            result: tuple[Tensor, ...] = torch.where(rest[0], outputs, MASKED).argmax(-1), outputs
        elif self.kind == "binary":
            result = (outputs > 0).long(), outputs
        else:
            means, log_std = outputs.chunk(2, -1)
            result = torch.minimum(torch.maximum(means, self.low), self.high), means, log_std.exp()
        return (*result, after) if self.recurrent else result


def to_onnx(trained: TrainedPolicy) -> bytes:
    """An ONNX graph of one greedy step for any number of rows, from raw observations; the mask is a required input."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise TownletError(f"the exporter for ONNX needs {' and '.join(missing)}", "pip install 'townlet[onnx]'")
    hidden_size, raw = trained.hidden_size, trained.loaded.task.raw_observation()
    rows = torch.export.Dim("rows", min=1)
    inputs = {"obs": torch.zeros(2, raw.layout.size)}
    if choices := trained.actions.choices:
        inputs["mask"] = torch.ones(2, choices, dtype=torch.bool)
    if hidden_size:
        inputs["hidden"] = torch.zeros(2, hidden_size)
    row_axis = {0: rows}
    others = {"rest": tuple(row_axis for _ in list(inputs)[1:])} if len(inputs) > 1 else {}
    with _quiet():
        try:
            program = torch.onnx.export(
                GreedyStep(trained, raw.scaling).eval(),
                tuple(inputs.values()),
                input_names=list(inputs),
                output_names=["action", *OUTPUTS[trained.kind], *(["next_hidden"] if hidden_size else [])],
                dynamic_shapes={"obs": row_axis, **others},
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError:  # an operation that ONNX lacks
            name = trained.loaded.recipe.network.name
            raise TownletError(f"the network '{name}' cannot be written as ONNX", "use --format safetensors") from None
        assert program is not None
        return _with_metadata(program.model_proto, trained, raw.layout)


def _with_metadata(model: onnx.ModelProto, trained: TrainedPolicy, layout: ObservationLayout) -> bytes:
    """The graph with metadata."""
    import onnx
    from onnx import helper

    choices, hidden_size, count = trained.actions.choices, trained.hidden_size, trained.actions.n
    readme = ONNX_README.format(
        size=layout.size,
        mask=MASK_README.format(count=choices) if choices else "",
        action=ACTION_README[trained.kind].format(count=count),
        outputs=", ".join(f"{name} [rows, {count}]" for name in OUTPUTS[trained.kind]),
        hidden=f"; hidden [rows, {hidden_size}] float32, zeros at the start of an episode" if hidden_size else "",
        next_hidden=f"; next_hidden [rows, {hidden_size}], which is `hidden` of the next step" if hidden_size else "",
    )
    model.doc_string = readme
    helper.set_model_props(model, {"readme": readme, **metadata(trained, layout)})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's warnings and log lines, which are meant for its developers."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx", "onnxscript", "onnx_ir")]
    with ExitStack() as restored:
        for logger in loggers:
            restored.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        restored.enter_context(warnings.catch_warnings(action="ignore"))
        yield
