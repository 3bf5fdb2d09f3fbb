"""Tests of a job's SQL in YAML: load them, run them in memory, and report what differs."""
