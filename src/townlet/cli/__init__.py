"""The command line, one file per verb. It parses, calls the rooms below and prints; it decides nothing."""
