"""Curricula: the difficulty stage of each row and when it changes. The environment applies the stage's settings."""
