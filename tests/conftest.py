"""For all tests: a busy machine is no mistake, so no example of a law has to be quick."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
