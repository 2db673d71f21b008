"""How settings are read, checked and shown. Which there are: heartbeat_stream/settings.py."""
