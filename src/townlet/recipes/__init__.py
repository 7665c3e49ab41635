"""Recipes: what can be trained, as YAML. Find, merge, check and print them; the shipped ones are in this folder."""
