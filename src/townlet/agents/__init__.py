"""One learning algorithm per file, each in the same order: settings, loss functions, agent class, registration.

Depends on `interfaces`, `nets`, `buffers` and `explore`; training loops, run folders and user interfaces are elsewhere.
"""
