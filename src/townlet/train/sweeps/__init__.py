"""The search for better settings: what is searched, the study that trials share, one trial, and what was found."""
