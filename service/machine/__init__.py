"""Access to the machine: memory, ports, downloads, signals."""
