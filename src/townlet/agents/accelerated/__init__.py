"""Faster implementations of algorithms in `townlet.agents`.

Each is compared with the plain one by tests/agents/accelerated.
"""
