"""The same work in other frameworks: programs of their own, run in an environment of their own.

Each is called with BROKERS TOPIC MESSAGES DIRECTORY, reads the topic from its beginning until it
has seen so many records, keeps the newest heartbeat of each room as the framework's users would,
and prints one line of JSON: messages, seconds from the first to the last one, CPU seconds. They
import nothing of this package.
"""
