"""The town, a batched life simulation: worlds in YAML, one rule book, two engines, rendering and recording."""
