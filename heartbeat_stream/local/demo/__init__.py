"""`heartbeat-stream demo`: the whole pipeline on one machine, seen from outside.

What is shown comes from the worker's `/metrics`, from the table and from the topic. Only what the
rows are compared with in the end, the newest heartbeat of each room, is told by the fleet itself.
"""

from heartbeat_stream.local.demo.run import run_demo
from heartbeat_stream.local.demo.watching import FleetSize

__all__ = ["FleetSize", "run_demo"]
