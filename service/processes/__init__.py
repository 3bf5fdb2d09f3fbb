"""Spark's Python processes: forks, the daemon, the class archive, executors."""
