"""The audit of result topics: DuckDB computes a sink's query from the source topics, and both results are compared."""
