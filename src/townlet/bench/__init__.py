"""Benchmarks of simulation and training speed."""
