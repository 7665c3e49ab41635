"""Search for better settings of a recipe with Optuna: search space, shared study, trials, and the best recipe found."""
