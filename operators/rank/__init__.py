"""Operators for ranks (ROW_NUMBER, RANK, DENSE_RANK, Top-N) and deduplication."""
