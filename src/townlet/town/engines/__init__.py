"""Engines that run the rule book: Numba on the CPU, torch on any device."""
