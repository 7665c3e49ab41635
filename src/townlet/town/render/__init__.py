"""A town as text for terminals and as pictures."""
