"""Wrappers of Gymnasium environments, chosen by name in a recipe.

`spec` lists them and `build` constructs them. Wrappers of a single row are Gymnasium wrappers; those that work on all
rows at once (normalization, frame stacking) are a `Stage`.
"""
