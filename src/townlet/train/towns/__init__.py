"""What training knows of towns: their worlds, what the journal keeps of them, how well lives are lived."""
