"""Faster forms of algorithms in `townlet.agents`, each proven equal to the readable one by tests/agents/accelerated.

`agent.accelerate: false` turns them off. Nothing here is needed to understand an algorithm.
"""
