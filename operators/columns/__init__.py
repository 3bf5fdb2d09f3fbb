"""Changes as columns: the data that operators exchange, and its hashing, grouping, packing and cancelling."""
