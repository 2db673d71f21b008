"""The command line (in the making)."""


def main() -> int:
    """Run one command."""
    raise SystemExit(2)
