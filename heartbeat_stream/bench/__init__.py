"""The benchmarks: load, a worker as a user runs it, and yardsticks beside it in the same run.

Needs the extras "local" and "bench"; a worker in production has neither.
"""
