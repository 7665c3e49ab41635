"""Lessons: each reproduces one failure of reinforcement learning beside its cure, and measures both.

A lesson is a folder: `lesson.yaml` (this package's schema), `recipe.yaml` (a recipe file with one variant per arm),
`README.md` (the text), and `results.json` with `figure.svg` (the last measurement over several seeds).
"""
