"""The job file: its model, reading it, and what is wrong with it."""
