"""What operators see of a worker over HTTP."""
