"""What agents keep of the past: rings, sequences, priorities and rollouts, all preallocated.

A memory stores and samples; what is learned from it is the agents' business.
"""
