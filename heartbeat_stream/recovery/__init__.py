"""What operators do when something went wrong: replay, rebuild, forget, look up."""
