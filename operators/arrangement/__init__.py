"""State: multisets of rows indexed by key, as sorted immutable segments in a store of blobs."""
