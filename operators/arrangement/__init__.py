"""Operator state: multisets of rows indexed by key, and stored as sorted, immutable segments in a blob store."""
