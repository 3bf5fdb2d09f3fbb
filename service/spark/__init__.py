"""Runs operators on Spark: the session, the state on RocksDB, and the one stateful processor."""
