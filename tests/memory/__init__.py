"""Memories against plain Python that does the same, one transition at a time."""

import torch
from hypothesis import settings

torch.set_num_threads(1)

# The same examples in every run and no clock: what fails, fails for everybody.
law = settings(deadline=None, derandomize=True, max_examples=100, database=None)
