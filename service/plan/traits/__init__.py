"""Facts about a node's rows: keys, kinds of changes, NULLs, monotonicity, and partitioning."""
