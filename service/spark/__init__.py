"""Runs operators on Spark: the session, the state in RocksDB, and the only stateful processor."""
