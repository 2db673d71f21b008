"""`python -m heartbeat_stream` is `heartbeat-stream`."""

from heartbeat_stream.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
