"""The live page: a server that shows runs while they train and after, and the page that it serves.

Here: what is said to a page, who plays for it, the page itself. Not here: training; it knows nothing of who watches.
"""
