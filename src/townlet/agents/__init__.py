"""One learning algorithm per file, all on the same floor plan: settings, mathematics, act, learn.

Agents know the contract, networks, memories and exploration; loops, files and screens are elsewhere.
"""
