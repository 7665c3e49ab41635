"""For all tests: a busy machine is no mistake, so no example of a law has to be quick.

Tests run beside each other, one on each core: threads of torch would only wait for those of the others. What a test
starts inherits that.
"""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
