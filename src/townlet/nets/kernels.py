"""Which of torch's kernels a network is calculated with."""

from __future__ import annotations

import platform

import torch


def choose_kernels(convolves: bool) -> None:
    """Take the faster kernels for a network with or without convolutions, in the whole process.

    On ARM under Linux oneDNN multiplies the matrices of small networks up to eight times as slowly as BLAS does; only
    its convolutions are faster. Whoever loads a policy chooses alike, so that it acts alike to the last bit.
    """
    if (platform.system(), platform.machine()) == ("Linux", "aarch64"):
        torch.backends.mkldnn.enabled = convolves  # type: ignore[assignment]
