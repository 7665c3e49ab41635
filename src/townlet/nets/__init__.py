"""Torch modules that encode the named blocks of an observation, and optimizers over their parameters.

Independent of rewards and returns.
"""
