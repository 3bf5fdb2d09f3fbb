"""Tools for trying Rowkind on one machine: a broker, a schema registry, the demo."""
