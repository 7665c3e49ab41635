"""The CPU engine: the rule book compiled by Numba, row by row, into arrays shared with NumPy and torch."""
