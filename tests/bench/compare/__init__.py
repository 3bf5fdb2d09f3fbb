"""Comparison of Rowkind and Flink SQL, run in turn on the same topics of one broker."""
