"""Grouped aggregation."""
