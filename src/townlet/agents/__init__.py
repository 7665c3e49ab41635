"""Learning algorithms, one per file in the same order: settings, loss functions, agent class, registration.

The other files hold what they share. Nothing here depends on training loops, run folders or user interfaces.
"""
