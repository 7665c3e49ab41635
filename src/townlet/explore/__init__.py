"""Exploration: action selection from values (ε-greedy, Boltzmann) and intrinsic rewards for novelty.

Independent of environments and of the agents' networks.
"""
