"""Kafka support: reading and writing topics, offsets, transactions, progress and dead letters. Independent of Spark."""
