"""Which of torch's kernels a network is calculated with."""

from __future__ import annotations

import platform

import torch

from townlet.nets.spec import CnnSpec, NetworkSpec


def choose_kernels(spec: NetworkSpec) -> None:
    """Take the faster kernels for this network, in the whole process.

    On ARM under Linux oneDNN multiplies the matrices of small networks up to eight times as slowly as BLAS does; only
    its convolutions are faster. Whoever loads a policy chooses alike, so that it acts alike to the last bit.
    """
    if (platform.system(), platform.machine()) == ("Linux", "aarch64"):
        torch.backends.mkldnn.enabled = isinstance(spec, CnnSpec)  # type: ignore[assignment]
