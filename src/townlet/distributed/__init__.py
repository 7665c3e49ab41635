"""Training in several processes: process groups, reductions, and the sharding of rows."""
