"""Recipes: what can be trained, as YAML. Schema, inheritance, overrides and checks; the shipped recipes lie beside."""
