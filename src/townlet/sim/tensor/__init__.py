"""The tensor engine: the rule book on torch, all rows at once, eager or as one compiled graph."""
