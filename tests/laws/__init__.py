"""Laws of the town as properties: what must hold in every world, not in one example."""

from hypothesis import HealthCheck, settings

# The same examples in every run and no clock: a law that fails, fails for everybody.
law = settings(
    deadline=None,
    derandomize=True,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Where every example builds and plays a town: in short, and in full by `make test-long`.
brief = settings(law, max_examples=24)
