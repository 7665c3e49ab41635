"""The command line: one module per command group, which parses arguments, calls other packages and prints results."""
