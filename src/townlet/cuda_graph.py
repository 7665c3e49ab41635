"""A function on tensors that stay the same, compiled into few kernels, and on CUDA recorded and replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any, Final

import torch
from torch import Tensor

WARM: Final = 3  # calls before a recording: the compiler may allocate and tune in the first ones


def compile_method(method: Callable[..., Any], device: str) -> Callable[..., Any]:
    """The method as one compiled graph."""
    assert isinstance(method, MethodType)
    # The hash of `starts` uses each value twice in a row. Left to itself the compiler walks every path through such a
    # chain, which takes minutes; told to name results early, it fuses them again and is done in seconds.
    options: dict[str, Any] = {"realize_opcount_threshold": 4}
    if device != "cpu":
        # Memory is what a GPU waits for: one kernel for all that rows become, one for all that they see.
        options |= {"max_fusion_size": 1024, "force_pointwise_cat": True}
    found: Callable[..., Any] = torch.compile(_apart(method), fullgraph=True, dynamic=False, options=options)
    return found


def _apart(method: MethodType) -> MethodType:
    """The same method, of which torch knows nothing yet.

    Torch remembers by its code what it compiled, counts every further engine as a recompilation of the first one, and
    gives up at the ninth.
    """
    plain = method.__func__
    own = FunctionType(plain.__code__.replace(), plain.__globals__, plain.__name__, plain.__defaults__)
    return MethodType(own, method.__self__)


class CudaGraph:
    """A function without arguments that only reads and writes certain tensors, as one launch of the device.

    A small town takes a tenth of the time so: launching kernels one by one takes longer than they do.
    """

    def __init__(
        self, function: Callable[[], None], tensors: Sequence[Tensor], generators: Sequence[torch.Generator] = ()
    ) -> None:
        """After it the `tensors` and the `generators`, all that it changes and reads again, are as before."""
        self._function = function
        before, drawn = [tensor.clone() for tensor in tensors], [generator.get_state() for generator in generators]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM):
                function()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)
        with torch.cuda.graph(self._graph):
            function()
        for tensor, was in zip(tensors, before, strict=True):
            tensor.copy_(was)
        for generator, state in zip(generators, drawn, strict=True):
            generator.set_state(state)

    def __call__(self) -> None:
        """Do it; inside somebody else's recording it becomes a part of that."""
        if torch.cuda.is_current_stream_capturing():
            self._function()
        else:
            self._graph.replay()
