"""Torch modules built from the named blocks of an observation. Nothing here knows about rewards or returns."""
