"""Domains of users: a Python file, or a module of an installed package, with five members; the rest has defaults."""
