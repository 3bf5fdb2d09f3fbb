"""The Python API for a job (`rowkind.Job`)."""
