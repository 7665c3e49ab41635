"""Torch modules built from the named blocks of an observation, and their descent down a gradient.

Nothing here knows about rewards or returns.
"""
