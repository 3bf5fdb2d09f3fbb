"""Kafka: reading and writing topics, offsets, transactions, progress and dead letters. Does not depend on Spark."""
