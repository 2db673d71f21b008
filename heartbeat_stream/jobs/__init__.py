"""The jobs that a worker can run, each in the words of the core."""
