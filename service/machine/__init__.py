"""What concerns the machine: memory, ports, downloads, signals."""
