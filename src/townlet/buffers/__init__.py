"""Preallocated experience buffers: replay, prioritized replay, sequences, episodes and rollouts.

A buffer stores and samples steps; the losses computed from them belong to the agents.
"""
