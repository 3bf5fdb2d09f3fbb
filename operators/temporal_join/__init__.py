"""Joins by time: as-of joins, versions and lookups."""
