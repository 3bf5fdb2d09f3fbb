"""Operator state: multisets of rows indexed by key, stored as sorted immutable segments in a blob store."""
