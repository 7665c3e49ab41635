"""Strict YAML to frozen Pydantic models, with the source location of every error.

Parsing, inheritance, overrides, validation and JSON Schema; not the meaning of any key.
"""
