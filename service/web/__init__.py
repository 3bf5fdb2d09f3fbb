"""What the port of a service shows."""
