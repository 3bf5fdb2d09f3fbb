"""Scripts of Flink SQL as job files: `rowkind import`."""
