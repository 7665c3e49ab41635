"""Hyperparameter search with Optuna: search space, trials, and the study that processes share."""
