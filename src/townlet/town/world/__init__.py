"""Worlds as YAML: schema, inheritance, validation, and compilation into the tables that the engines read."""
