"""Small tensors on one thread: more would only wait for each other."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
