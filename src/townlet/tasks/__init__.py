"""What the trainer needs to know about its environment: one task for towns, one for Gymnasium environments."""
