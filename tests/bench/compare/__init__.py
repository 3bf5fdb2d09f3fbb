"""Rowkind and Flink SQL in turn on the same topics of one broker, in one run."""
