"""What a worker tells Prometheus: the list of metrics, and how they are read."""
