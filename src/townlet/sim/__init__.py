"""The town: one rule book, two engines, observation, mask, reward, reset.

What a world is lies in `world`; how it looks to Gymnasium in `envs`.
"""
