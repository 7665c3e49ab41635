"""Buffers compared with plain Python that handles one transition at a time."""

from hypothesis import settings

from examples import examples

# The same examples in every run, and no deadline: failures are reproducible.
law = settings(deadline=None, derandomize=True, max_examples=examples(25, 100), database=None)
