"""Faust, bent in one place: batches, tables that are written back, checkpoints and recovery."""
