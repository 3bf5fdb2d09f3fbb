"""The job file: its model, its loader, and its errors."""
