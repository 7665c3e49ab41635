"""Strict YAML to frozen Pydantic models, with the source location of every error.

This package parses, merges, overrides and validates; other packages define what the keys mean.
"""
