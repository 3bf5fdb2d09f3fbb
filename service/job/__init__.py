"""The job file: its model, its loader, and the errors in it."""
