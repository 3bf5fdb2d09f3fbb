"""Aggregates by group."""
