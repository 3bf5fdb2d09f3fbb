"""Ranks and deduplication."""
