"""Columnar changes, the data that operators exchange, and functions that hash, group, pack and cancel changes."""
