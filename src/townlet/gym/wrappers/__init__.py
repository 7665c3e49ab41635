"""Wrappers of Gymnasium environments, chosen by name in a recipe.

`spec` lists them and `build` constructs them. `actions`, `observations` and `shaping` hold Gymnasium wrappers of single
rows; `transforms` works on all rows at once.
"""
