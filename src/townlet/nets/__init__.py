"""Torch modules that encode the named blocks of an observation, and optimizers over their parameters.

Nothing here knows about rewards or returns.
"""
