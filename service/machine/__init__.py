"""Access to the machine: memory, threads, ports, downloads, signals."""
