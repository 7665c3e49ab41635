"""Which stage of difficulty each row is in, and why it changed. Stages are data; the environment applies them."""
