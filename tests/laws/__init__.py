"""Property tests of the town: what must hold in every world."""

from hypothesis import HealthCheck, settings

# Deterministic examples without a deadline: a failing law fails in every run.
law = settings(
    deadline=None,
    derandomize=True,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# The eager torch engine is a thousand times slower than Numba: a few examples here, all in `make test-long`.
brief = settings(law, max_examples=4)
