"""The part of a run that acts, as one file that another program can use: safetensors or ONNX."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import torch
from safetensors.torch import save
from torch import Tensor, nn

from townlet.errors import TownletError
from townlet.runs.disk import replace_file
from townlet.train.policies import TrainedPolicy

if TYPE_CHECKING:
    import onnx

Format = Literal["safetensors", "onnx"]
VERSION: Final = "1"
LOWEST: Final = torch.finfo(torch.float32).min  # of an invalid action; ONNX runtimes differ about infinity
TENSORS: Final = """\
The network of an agent trained by Townlet. Tensors have the names of the modules in townlet.nets; `network` and
`agent` say how these are put together. Concatenate the blocks of `observation` in their order, as float32. The \
outputs are {outputs}, one for each of `actions`: take the valid action with the highest."""
GRAPH: Final = """\
An agent trained by Townlet. Inputs: obs [rows, {size}] float32, the blocks of `observation` one after the other; \
mask [rows, {count}] bool, true where an action makes sense, all \
of them when it is left out{memory}. \
Outputs: action [rows] int64, a place in `actions`; {outputs} [rows, {count}]{after}."""


def export(trained: TrainedPolicy, form: Format, to: Path | None = None) -> Path:
    """Write the policy into a file, by default beside the run's own; gives its path."""
    makers: dict[str, Callable[[TrainedPolicy], bytes]] = {"safetensors": as_safetensors, "onnx": as_onnx}
    if form not in makers:
        raise TownletError(f"there is no format '{form}'", f"known: {', '.join(get_args(Format))}")
    path = to or trained.run.path / f"policy.{form}"
    if not path.parent.is_dir():
        raise TownletError(f"there is no folder {path.parent}", "make it first, or write elsewhere with --to")
    replace_file(path, makers[form](trained))
    return path


def describe(trained: TrainedPolicy) -> dict[str, str]:
    """What another program must know, as texts; all but plain words are JSON."""
    recipe, world = trained.loaded.recipe, trained.world
    blocks = [
        {"name": b.name, "start": b.start, "shape": b.shape, "low": b.low, "high": b.high, "kind": b.kind}
        for b in trained.layout
    ]
    agent: dict[str, Any] = {"name": recipe.agent.name}
    for key in ("dueling", "carry"):
        if (value := getattr(recipe.agent, key, None)) is not None:
            agent[key] = value
    facts = {
        "observation": blocks,
        "actions": world.actions,
        "network": recipe.network.model_dump(mode="json"),
        "agent": agent,
        "hidden": trained.hidden,
        "env_steps": trained.env_steps,
        "score": trained.info.get("score"),
    }
    words = {
        "format": "townlet-policy",
        "version": VERSION,
        "outputs": trained.kind,
        "recipe": recipe.title,
        "run": trained.run.name,
        "world": world.name,
        "interface": world.interface_hash,
    }
    return words | {name: json.dumps(value) for name, value in facts.items()}


def as_safetensors(trained: TrainedPolicy) -> bytes:
    """Tensors by name, and what they mean as metadata."""
    about = {"readme": TENSORS.format(outputs=trained.kind), **describe(trained)}
    weights = {name: value.contiguous() for name, value in trained.network.state_dict().items()}
    return save(weights, metadata=about)


class GreedyStep(nn.Module):
    """One greedy step: obs [N, D], mask [N, K] → action [N], outputs [N, K]; with memory also hidden [N, H]."""

    def __init__(self, network: nn.Module, hidden: int) -> None:
        super().__init__()
        self.network, self.hidden = network, hidden

    def forward(self, obs: Tensor, mask: Tensor, hidden: Tensor | None = None) -> tuple[Tensor, ...]:
        before = obs.new_zeros((obs.shape[0], 0)) if hidden is None else hidden
        outputs, after = self.network(obs, before)
        action = torch.where(mask, outputs, LOWEST).argmax(-1)
        return (action, outputs) if hidden is None else (action, outputs, after)


def as_onnx(trained: TrainedPolicy) -> bytes:
    """A graph of one greedy step for any number of rows; the mask may be left out."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise TownletError(f"the exporter for ONNX needs {' and '.join(missing)}", "pip install 'townlet[onnx]'")
    size, count, memory = trained.layout.size, trained.actions.n, trained.hidden
    rows = torch.export.Dim("rows", min=1)
    inputs = {"obs": torch.zeros(2, size), "mask": torch.ones(2, count, dtype=torch.bool)}
    if memory:
        inputs["hidden"] = torch.zeros(2, memory)
    outputs = ["action", trained.kind, *(["next_hidden"] if memory else [])]
    with _quiet():
        try:
            program = torch.onnx.export(
                GreedyStep(trained.network, memory).eval(),
                tuple(inputs.values()),
                input_names=list(inputs),
                output_names=outputs,
                dynamic_shapes={name: {0: rows} for name in inputs},
                dynamo=True,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError:  # an operation that ONNX does not have
            name = trained.loaded.recipe.network.name
            raise TownletError(f"the network '{name}' cannot be written as ONNX", "use --format safetensors") from None
        assert program is not None
        return _finished(program.model_proto, trained)


def _finished(model: onnx.ModelProto, trained: TrainedPolicy) -> bytes:
    """The graph with a mask that may be left out, and with what another program must know."""
    import onnx
    from onnx import helper, numpy_helper

    count, memory = trained.actions.n, trained.hidden
    # An input that has a value of its own is optional; one line of it stands for all rows.
    mask = next(entry for entry in model.graph.input if entry.name == "mask")
    mask.type.tensor_type.shape.dim[0].dim_param = "mask_rows"
    model.graph.initializer.append(numpy_helper.from_array(torch.ones(1, count, dtype=torch.bool).numpy(), "mask"))
    readme = GRAPH.format(
        size=trained.layout.size,
        count=count,
        outputs=trained.kind,
        memory=f"; hidden [rows, {memory}] float32, zeros at the start of an episode" if memory else "",
        after=f"; next_hidden [rows, {memory}], the hidden of the next step" if memory else "",
    )
    model.doc_string = readme
    helper.set_model_props(model, {"readme": readme, **describe(trained)})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's own warnings and log lines: they speak to its authors."""
    loggers = [logging.getLogger(name) for name in ("torch", "torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
