"""Environments by id: the town as Gymnasium environment, and the pictures of it.

The rules are not here (see `sim`), nor is anything that learns.
"""
