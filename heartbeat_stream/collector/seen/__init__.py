"""Stores of the events that were seen: one small protocol, and what keeps to it."""
