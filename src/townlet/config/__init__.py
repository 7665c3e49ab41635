"""Strict YAML into frozen models, with every mistake at its place in the file.

Here: reading, inheritance, command-line overrides, checks of shape, JSON Schema. Not here: what the keys mean.
"""
