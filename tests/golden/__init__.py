"""The standard figures, copied from the specification, checked on every engine and the reference."""
