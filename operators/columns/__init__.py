"""Changes as columns: what moves between operators, and what is done to it: hashing, grouping, packing, cancelling."""
