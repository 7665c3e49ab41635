"""The live page: a web server that shows runs during and after training, and the static page it serves.

Training does not depend on this package; the server reads run folders and the feed that a running training writes.
"""
