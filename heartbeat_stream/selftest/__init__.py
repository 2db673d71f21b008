"""`selftest`: known reports through a system that runs, and what became of them."""
