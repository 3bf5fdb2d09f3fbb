"""State: multisets of rows indexed by key, as sorted immutable segments in a blob store."""
