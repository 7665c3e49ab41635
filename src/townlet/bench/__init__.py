"""Benchmarks of simulation and training on this machine."""
