"""A job as a Python object (`rowkind.Job`)."""
