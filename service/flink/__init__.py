"""Convert Flink SQL scripts to job files: `rowkind import`."""
