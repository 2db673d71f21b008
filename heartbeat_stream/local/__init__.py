"""The embedded stack: a broker and a PostgreSQL that come as wheels, for the demo and the tests.

Nothing here runs in production; the package's extra `local` brings what it needs.
"""
