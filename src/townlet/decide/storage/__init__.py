"""Durable storage of the decision service: write-ahead log, snapshots, versions, backup and verification."""
