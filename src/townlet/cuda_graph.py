"""Compilation of methods with torch.compile, and capture of functions as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any, Final

import torch
from torch import Tensor

WARMUP_CALLS: Final = 3  # before the capture: the compiler may allocate and tune in the first calls


def compile_method(method: Callable[..., Any], device: str) -> Callable[..., Any]:
    """The method, compiled by torch.compile at its first call, without graph breaks."""
    assert isinstance(method, MethodType)
    # In the hash of `town.reset` each value is used twice to compute the next. Without early realization the compiler
    # follows every path through this chain, which takes minutes; with it, compiling takes seconds.
    options: dict[str, Any] = {"realize_opcount_threshold": 4}
    if device != "cpu":
        # A GPU step is bound by memory: use one kernel for the new state and one for the observation.
        options |= {"max_fusion_size": 1024, "force_pointwise_cat": True}
    # Torch caches compilations by code object, counts every further instance as a recompilation, and gives up at the
    # ninth; so compile a copy of the function with its own code object.
    function = method.__func__
    copy = FunctionType(function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__)
    bound = MethodType(copy, method.__self__)
    compiled: Callable[..., Any] = torch.compile(bound, fullgraph=True, dynamic=False, options=options)
    return compiled


class CudaGraph:
    """A function without arguments that reads and writes fixed tensors, captured and replayed as one launch.

    A step of a small town takes a tenth of the time this way: launching kernels one by one takes longer than running
    them.
    """

    def __init__(
        self, function: Callable[[], None], tensors: Sequence[Tensor], generators: Sequence[torch.Generator] = ()
    ) -> None:
        """Capture the function, then restore `tensors` and `generators`: all that it changes and later reads."""
        self._function = function
        values, states = [tensor.clone() for tensor in tensors], [generator.get_state() for generator in generators]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARMUP_CALLS):
                function()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)
        with torch.cuda.graph(self._graph):
            function()
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)

    def __call__(self) -> None:
        """Replay the graph; while another graph is being captured, call the function to make it part of that one."""
        if torch.cuda.is_current_stream_capturing():
            self._function()
        else:
            self._graph.replay()
