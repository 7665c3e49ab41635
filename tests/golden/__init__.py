"""The standard figures, typed again from the specification, against every engine and the reference."""
