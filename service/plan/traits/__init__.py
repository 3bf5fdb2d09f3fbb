"""What is known of a node's rows: keys, kinds of changes, NULLs, monotonicity, and where rows are."""
