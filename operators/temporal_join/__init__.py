"""Temporal joins: as-of joins, joins with a table's versions, and lookup joins."""
