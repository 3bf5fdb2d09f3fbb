"""The multi-job service: several jobs in one service."""
