"""Recording of towns: whole episodes of some rows, and counts of how affordances are used."""
