"""One torch thread, because the tensors are small."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
