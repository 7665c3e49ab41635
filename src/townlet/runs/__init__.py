"""What a run leaves on disk: its folder, lock, checkpoints, metrics and report. Nothing here trains."""
