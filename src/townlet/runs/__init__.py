"""A run on disk: folder, lock, checkpoints, metrics in SQLite, videos and report. Nothing here trains."""
