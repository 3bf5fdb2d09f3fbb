"""Several jobs in one service."""
