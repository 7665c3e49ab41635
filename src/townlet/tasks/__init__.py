"""Towns and Gymnasium environments as tasks: the only place where the trainer distinguishes them."""
