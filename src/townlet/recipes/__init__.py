"""Recipes: experiments as YAML files. Modules to find, merge, check and print them; the shipped ones are here."""
